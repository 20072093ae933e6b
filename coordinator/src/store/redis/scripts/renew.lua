#!lua flags=allow-oom
-- Keeps a shard. KEYS: 1 the lease. ARGV: 1 epoch; 2 nonce; 3 how long the lease lasts, in milliseconds.
local lease = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then
  return { 'FENCED', lease[1] or '0' }
end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3]))
return { 'OK' }
