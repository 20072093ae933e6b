#!lua flags=no-writes
-- An entity as of one moment: its record, the first page of its live documents, its marks.
-- KEYS: 1 the entity; 2 its live documents; 3 its marks. ARGV: 1 what keys of documents begin with; 2 the page's size.
local live = redis.call('ZRANGEBYLEX', KEYS[2], '-', '+', 'LIMIT', 0, ARGV[2])
local heads = {}
for i, document in ipairs(live) do
  heads[i] = redis.call('HGET', ARGV[1] .. document, 'head')
end
return { redis.call('HGETALL', KEYS[1]), live, heads, redis.call('HGETALL', KEYS[3]) }
