#!lua flags=no-writes
-- A page of an entity's live documents, with their heads.
-- KEYS: 1 the live documents. ARGV: 1 what keys of documents begin with; 2 where to begin; 3 the page's size.
local live = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2], '+', 'LIMIT', 0, ARGV[3])
local heads = {}
for i, document in ipairs(live) do
  heads[i] = redis.call('HGET', ARGV[1] .. document, 'head')
end
return { live, heads }
