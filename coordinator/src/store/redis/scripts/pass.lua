#!lua flags=allow-oom
-- Ends a lease that others have passed: a server whose place this one took, or that went on beside it, has given the shard
-- away under a higher epoch, which whoever heard of it holds against the owner. The next to take it is above that.
-- KEYS: 1 the lease; 2 what says which store this is. ARGV: 1 the highest epoch of it that was seen, of which one that is
-- further ahead than clocks may be is garbage; 2 the id of the store: nothing is written in one that was emptied since.
if redis.call('HGET', KEYS[2], 'id') ~= ARGV[2] then
  return { 'KEPT' }
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch, seen = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0'), tonumber(ARGV[1])
if not epoch or epoch >= seen or seen > now + 600000 then
  return { 'KEPT' }
end
redis.call('HSET', KEYS[1], 'epoch', string.format('%.0f', seen), 'nonce', '', 'owner', '', 'until', '0', 'state', 'free')
return { 'PASSED' }
