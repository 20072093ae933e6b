#!lua flags=allow-oom
-- Notes that a member lives, forgets those that were silent for too long, and gives the records of the others, behind the
-- one that stood for this member, or nothing where that had ended.
-- KEYS: 1 the members. ARGV: 1 the member's id; 2 its record; 3 for how long it holds, in milliseconds.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function living(entry)
  local ends, record = string.match(entry, '^(%d+) (.*)$')
  return ends and tonumber(ends) > now and record
end
local before = living(redis.call('HGET', KEYS[1], ARGV[1]) or '') or ''
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + ARGV[3]) .. ' ' .. ARGV[2])
local all, live = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local record = living(all[i + 1])
  if record then
    live[#live + 1] = record
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return { before, live }
