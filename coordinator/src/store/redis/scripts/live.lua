-- A page of an entity's live documents, with their heads, and its version and last batch at that moment. Nothing at all
-- when the shard is held under another fence than the one that is named. Follows heads.lua.
-- KEYS: 1 the entity; 2 its live documents; 3 its heads; 4 the shard's lease. ARGV: 1 where to begin: behind which
-- document, as ranges of Redis say it, or how many come before; 2 the page's size; 3 epoch and 4 nonce of the fence, or
-- nothing where it is only read.
if is_anothers(KEYS[4], ARGV[3], ARGV[4]) then
  return false
end
local place, live = tonumber(ARGV[1]), nil
if place then
  live = redis.call('ZRANGE', KEYS[2], place, place + ARGV[2] - 1)
else
  live = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
end
return { redis.call('HMGET', KEYS[1], 'version', 'batch'), live, heads_of(KEYS[3], live) }
