#!lua flags=no-writes
-- A page of an entity's live documents, with their heads.
-- KEYS: 1 the live documents; 2 the heads. ARGV: 1 where to begin; 2 the page's size.
local live = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local heads = {}
-- Lua passes on some thousands of arguments at most.
for from = 1, #live, 2000 do
  for _, head in ipairs(redis.call('HMGET', KEYS[2], unpack(live, from, math.min(from + 1999, #live)))) do
    heads[#heads + 1] = head
  end
end
return { live, heads }
