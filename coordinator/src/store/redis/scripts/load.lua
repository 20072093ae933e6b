#!lua flags=no-writes
-- An entity as of one moment: its record, the first page of its live documents, its marks. Nothing at all when the shard is
-- held under another fence than the one that is named.
-- KEYS: 1 the entity; 2 its live documents; 3 its marks; 4 the shard's lease. ARGV: 1 what keys of documents begin with;
-- 2 the page's size; 3 epoch and 4 nonce of the fence, or nothing where it is only read.
if ARGV[3] then
  local lease = redis.call('HMGET', KEYS[4], 'epoch', 'nonce')
  if lease[1] ~= ARGV[3] or lease[2] ~= ARGV[4] then
    return false
  end
end
local live = redis.call('ZRANGEBYLEX', KEYS[2], '-', '+', 'LIMIT', 0, ARGV[2])
local heads = {}
for i, document in ipairs(live) do
  heads[i] = redis.call('HGET', ARGV[1] .. document, 'head')
end
return { redis.call('HGETALL', KEYS[1]), live, heads, redis.call('HGETALL', KEYS[3]) }
