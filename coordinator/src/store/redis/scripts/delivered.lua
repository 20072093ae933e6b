-- Takes effects out of a shard's outbox. Follows check.lua.
-- KEYS: 2 the outbox. ARGV: from 4 on their ids.
for i = 4, #ARGV do
  redis.call('XDEL', KEYS[2], ARGV[i])
end
return { 'OK' }
