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

-- Times rise with positions, so the walk ends at the first young record.
local function old_events(before, limit)
  local removed = 0
  if limit < 1 then return 0 end
  for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', limit)) do
    local fields = {}
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    local at = tonumber(fields.at or '')
    if not at or at >= before then break end
    forget_events(entry[1], fields.entity)
    removed = removed + 1
  end
  return removed
end

-- Members are the entity's name, a space, and the rest.
local function by_age(ages, before, limit, remove)
  if limit < 1 then return 0 end
  local old = redis.call('ZRANGEBYSCORE', ages, '-inf', '(' .. string.format('%.0f', before), 'LIMIT', 0, limit)
  for _, member in ipairs(old) do
    local space = string.find(member, ' ', 1, true)
    if space then remove(string.sub(member, 1, space - 1), string.sub(member, space + 1)) else remove(member) end
    redis.call('ZREM', ages, member)
  end
  return #old
end

local function bound(i)
  return tonumber(ARGV[i]), tonumber(ARGV[i + 1])
end

local before, limit = bound(5)
local old, surplus = old_events(before, limit), 0
before, limit = bound(7)
local replies = by_age(KEYS[3], before, limit, function(name, version)
  redis.call('ZREMRANGEBYSCORE', prefix .. 'replies:' .. name, version, version)
end)
before, limit = bound(9)
local marks = by_age(KEYS[4], before, limit, function(name, source)
  redis.call('HDEL', prefix .. 'marks:' .. name, source)
end)
before, limit = bound(11)
local documents = by_age(KEYS[5], before, limit, function(name, document)
  redis.call('ZREM', prefix .. 'documents:' .. name, document)
  redis.call('HDEL', prefix .. 'heads:' .. name, document)
  redis.call('UNLINK', prefix .. 'document:' .. name .. ':' .. document)
end)
before, limit = bound(13)
local letters = by_age(KEYS[7], before, limit, function(position)
  redis.call('ZREM', KEYS[6], position)
  redis.call('UNLINK', KEYS[8] .. ':' .. position)
end)

before, limit = bound(15)
local loose = by_age(KEYS[9], before, limit, function(name, blob)
  redis.call('UNLINK', prefix .. 'chunks:' .. name .. ':' .. blob)
end)

local left = tonumber(ARGV[17])
for i = 18, #ARGV, 2 do
  local history = prefix .. 'history:' .. ARGV[i]
  for _, position in ipairs(redis.call('ZRANGEBYSCORE', history, '-inf', ARGV[i + 1], 'LIMIT', 0, left)) do
    forget_events(position .. '-0', ARGV[i])
    surplus, left = surplus + 1, left - 1
  end
end
return {
  'OK', tostring(old), tostring(surplus), tostring(replies), tostring(marks), tostring(documents), tostring(letters),
  tostring(loose)
}
