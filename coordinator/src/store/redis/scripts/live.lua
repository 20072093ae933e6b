-- A page of an entity's live documents, with their heads. Follows heads.lua.
-- KEYS: 1 the live documents; 2 the heads. ARGV: 1 where to begin; 2 the page's size.
local live = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
return { live, heads_of(KEYS[2], live) }
