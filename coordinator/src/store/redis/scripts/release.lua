#!lua flags=allow-oom
-- Gives a shard up. The record stays, for its epoch must never be handed out again.
-- KEYS: 1 the lease. ARGV: 1 epoch; 2 nonce.
local lease = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then
  return { 'FENCED', lease[1] or '0' }
end
redis.call('HSET', KEYS[1], 'until', '0', 'state', 'free', 'nonce', '')
return { 'OK' }
