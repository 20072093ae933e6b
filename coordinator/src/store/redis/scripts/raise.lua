#!lua flags=allow-oom
-- Raises the last position of all shards to one that somebody has seen. Gives what it is then.
-- KEYS: 1 the last position of all shards. ARGV: 1 the position that was seen.
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
if not last then
  return redis.error_reply('it is no number')
end
if last < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1])
  return tonumber(ARGV[1])
end
return last
