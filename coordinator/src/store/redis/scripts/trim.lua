-- Forgets what is old in one shard, a bounded step. Follows check.lua. What it removes is chosen here, for what was
-- read before may have come to life again.
-- KEYS: 2 events; 3 ages of replies; 4 ages of marks; 5 archived documents; 6 dead letters' order; 7 their ages;
-- 8 dead letters; 9 blobs that nobody has kept.
-- ARGV: 4 what the keys of the shard begin with; pairs of a time and a limit: 5 events, 7 replies, 9 marks,
-- 11 archived documents, 13 dead letters, 15 loose blobs; 17 the limit for entities with too many events; then of each of
-- those its name and the highest version to forget.
local prefix = ARGV[4]

local function forget_events(id, name)
  redis.call('XDEL', KEYS[2], id)
  redis.call('ZREM', prefix .. 'history:' .. name, string.match(id, '^%d+'))
end

-- Records that are read at once, and bytes of events that a step reads, about. A record may have many MiB of them, which
-- cannot be left out, and what Lua holds comes on top of the memory that Redis was given.
local together, room = 8, 32 * 1024 * 1024

-- Times rise with positions, so the walk ends at the first young record, or at one that is none, which is named.
local function old_events(before, limit)
  local removed, read = 0, 0
  while removed < limit and read < room do
    local count = math.min(together, limit - removed)
    local entries = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', count)
    for _, entry in ipairs(entries) do
      local fields = {}
      for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
      local at = tonumber(fields.at or '')
      if not at or not fields.entity then return removed, entry[1] end
      if at >= before then return removed end
      forget_events(entry[1], fields.entity)
      removed, read = removed + 1, read + #(fields.events or '')
    end
    if #entries < count then break end
  end
  return removed
end

-- Members are the entity's name, a space, and the rest, but for those of dead letters. One that is malformed leads to
-- nothing, and goes alone.
local of_an_entity, of_a_letter = '^([^ ]+) (.+)$', '^(%d+)$'
local function by_age(ages, before, limit, form, remove)
  if limit < 1 then return 0 end
  local old = redis.call('ZRANGEBYSCORE', ages, '-inf', '(' .. string.format('%.0f', before), 'LIMIT', 0, limit)
  for _, member in ipairs(old) do
    local name, rest = string.match(member, form)
    if name then remove(name, rest) end
    redis.call('ZREM', ages, member)
  end
  return #old
end

local function bound(i)
  return tonumber(ARGV[i]), tonumber(ARGV[i + 1])
end

local before, limit = bound(5)
local old, strange = old_events(before, limit)
before, limit = bound(7)
local replies = by_age(KEYS[3], before, limit, '^([^ ]+) (%d+)$', function(name, version)
  redis.call('ZREMRANGEBYSCORE', prefix .. 'replies:' .. name, version, version)
end)
before, limit = bound(9)
local marks = by_age(KEYS[4], before, limit, of_an_entity, function(name, source)
  redis.call('HDEL', prefix .. 'marks:' .. name, source)
end)
before, limit = bound(11)
local documents = by_age(KEYS[5], before, limit, of_an_entity, function(name, document)
  redis.call('ZREM', prefix .. 'documents:' .. name, document)
  redis.call('HDEL', prefix .. 'heads:' .. name, document)
  redis.call('UNLINK', prefix .. 'document:' .. name .. ':' .. document)
end)
before, limit = bound(13)
local letters = by_age(KEYS[7], before, limit, of_a_letter, function(position)
  redis.call('ZREM', KEYS[6], position)
  redis.call('UNLINK', KEYS[8] .. ':' .. position)
end)

before, limit = bound(15)
local loose = by_age(KEYS[9], before, limit, of_an_entity, function(name, blob)
  redis.call('UNLINK', prefix .. 'chunks:' .. name .. ':' .. blob)
end)

local left, surplus = tonumber(ARGV[17]), 0
for i = 18, #ARGV, 2 do
  local history = prefix .. 'history:' .. ARGV[i]
  for _, position in ipairs(redis.call('ZRANGEBYSCORE', history, '-inf', ARGV[i + 1], 'LIMIT', 0, left)) do
    if string.match(position, '^%d+$') then
      forget_events(position .. '-0', ARGV[i])
    else
      redis.call('ZREM', history, position)
    end
    surplus, left = surplus + 1, left - 1
  end
end
-- What else is old in the shard is gone all the same.
if strange then
  return { 'GARBAGE', KEYS[2], 'its entry ' .. strange .. ' is no batch of an entity', 'take that out (XDEL)' }
end
return {
  'OK', tostring(old), tostring(surplus), tostring(replies), tostring(marks), tostring(documents), tostring(letters),
  tostring(loose)
}
