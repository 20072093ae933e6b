-- Forgets what is old in one shard, a bounded step. Follows check.lua. What it removes is chosen here, for what was
-- read before may have come to life again.
-- KEYS: 2 events; 3 ages of replies; 4 ages of marks; 5 archived documents; 6 dead letters' order; 7 their ages;
-- 8 dead letters; 9 blobs that nobody has kept.
-- ARGV: 4 what the keys of the shard begin with; 5 the time that it is; 6 the record behind which the walk for old
-- events begins; pairs of a time and a limit: 7 events, 9 replies, 11 marks, 13 archived documents, 15 dead letters,
-- 17 loose blobs; 19 the limit for entities with too many events; then of each of those its name and the highest version
-- to forget. Says how many of the first of them have nothing left to forget.
local prefix = ARGV[4]

-- Where something else is in the place of a key of an entity, it has nothing of what is forgotten, and holds up nothing
-- else of the shard.
local function forget_events(id, name)
  redis.call('XDEL', KEYS[2], id)
  redis.pcall('ZREM', prefix .. 'history:' .. name, string.match(id, '^%d+'))
end

-- Records that are read at once, and bytes of events that a step reads, about. A record may have many MiB of them, which
-- cannot be left out, and what Lua holds comes on top of the memory that Redis was given.
local together, room = 8, 32 * 1024 * 1024

-- Records that a step looks at, for each that it may forget.
local looks_each = 4

-- Times rise with positions, so the walk ends at the first young record, or at one that is none, which is named. What a
-- clock that was ahead has dated later than now holds up no other: it is passed. Gives how many lost their events; the
-- last record that need not be looked at again until what was passed is old; the earliest time of that; what is none.
local function old_events(before, limit, now, passed)
  local removed, looks, read, earliest = 0, limit * looks_each, 0, nil
  while looks > 0 and read < room do
    local count = math.min(together, looks)
    local entries = redis.call('XRANGE', KEYS[2], '(' .. passed, '+', 'COUNT', count)
    for _, entry in ipairs(entries) do
      if removed == limit then return removed, passed, earliest end
      local fields = {}
      for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
      local at = tonumber(fields.at or '')
      if not at or not fields.entity then return removed, passed, earliest, entry[1] end
      if at >= before and at <= now then return removed, passed, earliest end
      if at < before then
        forget_events(entry[1], fields.entity)
        removed = removed + 1
      else
        earliest = math.min(earliest or at, at)
      end
      passed, looks, read = entry[1], looks - 1, read + #(fields.events or '')
    end
    if #entries < count then break end
  end
  return removed, passed, earliest
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

local before, limit = bound(7)
local old, passed, earliest, strange = old_events(before, limit, tonumber(ARGV[5]), ARGV[6])
before, limit = bound(9)
local replies = by_age(KEYS[3], before, limit, '^([^ ]+) (%d+)$', function(name, version)
  redis.pcall('ZREMRANGEBYSCORE', prefix .. 'replies:' .. name, version, version)
end)
before, limit = bound(11)
local marks = by_age(KEYS[4], before, limit, of_an_entity, function(name, source)
  redis.pcall('HDEL', prefix .. 'marks:' .. name, source)
end)
before, limit = bound(13)
local documents = by_age(KEYS[5], before, limit, of_an_entity, function(name, document)
  redis.pcall('ZREM', prefix .. 'documents:' .. name, document)
  for _, hash in ipairs({ 'heads:', 'bodies:', 'changes:' }) do
    redis.pcall('HDEL', prefix .. hash .. name, document)
  end
end)
before, limit = bound(15)
local letters = by_age(KEYS[7], before, limit, of_a_letter, function(position)
  redis.call('ZREM', KEYS[6], position)
  redis.call('UNLINK', KEYS[8] .. ':' .. position)
end)

before, limit = bound(17)
local loose = by_age(KEYS[9], before, limit, of_an_entity, function(name, blob)
  redis.call('UNLINK', prefix .. 'chunks:' .. name .. ':' .. blob)
end)

local left, surplus, done = tonumber(ARGV[19]), 0, 0
for i = 20, #ARGV, 2 do
  if left == 0 then break end
  local history = prefix .. 'history:' .. ARGV[i]
  for _, position in ipairs(redis.call('ZRANGEBYSCORE', history, '-inf', ARGV[i + 1], 'LIMIT', 0, left)) do
    if string.match(position, '^%d+$') then
      forget_events(position .. '-0', ARGV[i])
    else
      redis.call('ZREM', history, position)
    end
    surplus, left = surplus + 1, left - 1
  end
  -- Of the one that took the last there may be more.
  if left > 0 then done = done + 1 end
end
-- What else is old in the shard is gone all the same.
if strange then
  return { 'GARBAGE', KEYS[2], 'its entry ' .. strange .. ' is no batch of an entity', 'take that out (XDEL)' }
end
return {
  'OK', tostring(old), tostring(surplus), tostring(replies), tostring(marks), tostring(documents), tostring(letters),
  tostring(loose), passed, earliest and string.format('%.0f', earliest) or '', tostring(done)
}
