#!lua flags=allow-oom
-- Notes that a member lives, and gives what all have said, in threes of an id, an end and a record; before that what the
-- clock of this server says, and the record that stood for this member, or nothing where that had ended. Who lives is for
-- whoever hears it to tell by its own clock: that of this server may be set.
-- KEYS: 1 the members. ARGV: 1 the member's id; 2 its record; 3 for how long it holds, in milliseconds; then, in pairs,
-- the id and the end of each that is forgotten unless it has said something since.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function said(id)
  return string.match(redis.call('HGET', KEYS[1], id) or '', '^(%d+) (.*)$')
end
local ends, before = said(ARGV[1])
if not ends or tonumber(ends) <= now then
  before = ''
end
for i = 4, #ARGV, 2 do
  if said(ARGV[i]) == ARGV[i + 1] then
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + ARGV[3]) .. ' ' .. ARGV[2])
local all = {}
for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
  local ends, record = said(id)
  if ends then
    all[#all + 1], all[#all + 2], all[#all + 3] = id, ends, record
  else
    redis.call('HDEL', KEYS[1], id)
  end
end
return { string.format('%.0f', now), before, all }
