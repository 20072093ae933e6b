-- What every write begins with: all keys hold what belongs there, and the writer still has the shard. A script that
-- fails half way is not rolled back, so nothing may be written before everything is known to be right.
-- KEYS[1] is the shard's lease. ARGV: 1 the types of the keys, a letter each; 2 epoch; 3 nonce.
local kinds = { h = 'hash', z = 'zset', x = 'stream', s = 'string' }
for i, key in ipairs(KEYS) do
  local wanted, found = kinds[string.sub(ARGV[1], i, i)], redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= wanted then
    return { 'GARBAGE', key, 'it holds a ' .. found .. ' where a ' .. wanted .. ' belongs' }
  end
end
local lease = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if lease[1] ~= ARGV[2] or lease[2] ~= ARGV[3] then
  return { 'FENCED', lease[1] or '0' }
end
