-- An entity as of one moment: its record, the first page of its live documents, its marks. Nothing at all when the shard is
-- held under another fence than the one that is named. Follows heads.lua.
-- KEYS: 1 the entity; 2 its live documents; 3 its heads; 4 its marks; 5 the shard's lease. ARGV: 1 the page's size;
-- 2 epoch and 3 nonce of the fence, or nothing where it is only read.
if is_anothers(KEYS[5], ARGV[2], ARGV[3]) then
  return false
end
local live = redis.call('ZRANGEBYLEX', KEYS[2], '-', '+', 'LIMIT', 0, ARGV[1])
return { redis.call('HGETALL', KEYS[1]), live, heads_of(KEYS[3], live), redis.call('HGETALL', KEYS[4]) }
