#!lua flags=allow-oom
-- Takes a shard that is free, whose lease has ended, or that this owner had before, as it has seen: what it asked for
-- before it was given that, and comes late, is not to take it from it. While an import fills the store nobody takes one:
-- whoever imports has all of them. That a lease has ended the owner has seen by its own clock: that of this server may be
-- set, or be another one than the last server had.
-- KEYS: 1 the lease; 2 what says which store this is; 3 the names of the shard's entities; 4 which shards have any.
-- ARGV: 1 owner; 2 its address; 3 nonce; 4 how long the lease lasts, in milliseconds; 5 the id of the store: nothing is
-- taken in one that was emptied since; 6 the highest epoch that the owner has seen; 7 the number of the shard; 8 the
-- epoch and the end of the lease that the owner has seen unchanged for as long as it lasts, or nothing.
-- The epoch is a hybrid clock: it rises also when a failover has brought an old lease back. That the clock of the promoted
-- server may be behind is what the owner's own knowledge is for. One that is further ahead than clocks may be is garbage,
-- which stays with its lease.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[2], 'id') ~= ARGV[5] then
  return { 'FOREIGN' }
end
if redis.call('HEXISTS', KEYS[2], 'importing') == 1 then
  return { 'IMPORTING' }
end
local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'none' and found ~= 'hash' then
  return { 'GARBAGE', KEYS[1], 'it holds a ' .. found .. ' where a hash belongs' }
end
local lease = redis.call('HMGET', KEYS[1], 'epoch', 'owner', 'address', 'until', 'state')
local epoch = tonumber(lease[1] or '0')
if not epoch or not tonumber(lease[4] or '0') then
  return { 'GARBAGE', KEYS[1], 'its epoch or its end is no number' }
end
local has_ended = ARGV[8] == (lease[1] or '0') .. ' ' .. (lease[4] or '0')
local seen = tonumber(ARGV[6])
-- Of garbage nobody takes note.
local is_own = lease[2] == ARGV[1] and (seen >= epoch or epoch > now + 600000)
if lease[5] == 'held' and not has_ended and not is_own then
  return { 'HELD', lease[2] or '', lease[3] or '' }
end
if seen > now + 600000 then
  seen = 0
end
local new = string.format('%.0f', math.max(epoch + 1, seen + 1, now))
-- For how long it was given is said of this epoch alone: a program that knows nothing of it takes the shard without it.
redis.call('HSET', KEYS[1], 'epoch', new, 'nonce', ARGV[3], 'owner', ARGV[1], 'address', ARGV[2],
  'until', string.format('%.0f', now + ARGV[4]), 'lasts', new .. ' ' .. ARGV[4], 'state', 'held')
-- Only the first commit of an entity says that its shard has some, and an older copy of that may have been put back. One
-- that holds something else is an alarm of whoever reads it.
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.pcall('SETBIT', KEYS[4], ARGV[7], 1)
end
return { 'TAKEN', new }
