#!lua flags=allow-oom
-- Keeps a shard. KEYS: 1 the lease. ARGV: 1 epoch; 2 nonce; 3 how long the lease lasts, in milliseconds.
local lease = redis.call('HMGET', KEYS[1], 'epoch', 'nonce', 'until')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then
  return { 'FENCED', lease[1] or '0' }
end
local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3])
-- Others see by its end that it was renewed, also where the clock was set back in between.
if ends == lease[3] then
  ends = string.format('%.0f', ends + 1)
end
redis.call('HSET', KEYS[1], 'until', ends, 'lasts', ARGV[1] .. ' ' .. ARGV[3])
return { 'OK' }
