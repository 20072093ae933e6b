-- One batch of one entity. Follows check.lua.
-- KEYS: 2 the entity; 3 the last position of all shards; 4 the entity's documents; 5 those that are live; 6 those of the
-- shard that are archived; 7 the heads of the entity's documents, 8 their bodies, 9 what was changed of these; then the
-- others, as the operations name them.
-- ARGV: 4 the version it builds on; 5 the batch that made it, or nothing; 6 its id; 7 its time; 8 the last sequence of its
-- effects, or nothing; 9 the entity's name; 10 how many documents are put; of each its name and its head, which begins
-- with `1` where it is live and with `0` where it is archived; then how many are deleted, and their names; then how many
-- bodies are made; of each its document's name, and the body; then how many are changed; of each its document's name, and
-- the two lines of what is changed, each behind a line end (`body.rs`); then how many blobs are to be kept; of each the
-- number of the key of its chunks, how many they are, their bytes, and its id; then the operations: how many arguments,
-- command, number of the key, arguments.
local expected = tonumber(ARGV[4])
local entity = redis.pcall('HMGET', KEYS[2], 'version', 'batch', 'sequence')
if entity.err then
  return garbage(KEYS[2], 'h')
end
local version, last, sequence = tonumber(entity[1] or '0'), entity[2] or '', tonumber(entity[3] or '0')
if not version or not sequence then
  return { 'GARBAGE', KEYS[2], 'its version or sequence is no number' }
end
if version == expected + 1 and last == ARGV[6] then
  -- Written again, so that what waits for replicas after this waits for the first writing too.
  redis.call('HSET', KEYS[2], 'batch', ARGV[6])
  return { 'OK' }
end
if version ~= expected or last ~= ARGV[5] then
  return { 'CONFLICT', tostring(version) }
end

local puts = tonumber(ARGV[10])
local deletes = tonumber(ARGV[11 + puts * 2])
local deleted = 12 + puts * 2
local made = tonumber(ARGV[deleted + deletes])
local bodies = deleted + deletes + 1
local changed = tonumber(ARGV[bodies + made * 2])
local changes = bodies + made * 2 + 1

-- What a hash has in these fields, `false` where there is nothing; or that it is none.
local function fields_of(key, names)
  local fields = {}
  for from = 1, #names, 2000 do
    local found = redis.pcall('HMGET', key, unpack(names, from, math.min(from + 1999, #names)))
    if found.err then
      return nil, garbage(key, 'h')
    end
    for i, value in ipairs(found) do
      fields[from + i - 1] = value
    end
  end
  return fields
end

-- How each document is left, and what its head was.
local names, left = {}, {}
for i = 1, puts do
  names[i], left[i] = ARGV[9 + i * 2], string.sub(ARGV[10 + i * 2], 1, 1)
end
for i = 1, deletes do
  names[puts + i], left[puts + i] = ARGV[deleted + i - 1], ''
end
local heads, found = fields_of(KEYS[7], names)
if found then
  return found
end

-- A document is put on a list, or taken off, when that changes: most are on theirs already.
local on, off = { [4] = {}, [5] = {}, [6] = {} }, { [4] = {}, [5] = {}, [6] = {} }
local function put_on(list, score, member)
  local members = on[list]
  members[#members + 1] = score
  members[#members + 1] = member
end
local function take_off(list, member)
  local members = off[list]
  members[#members + 1] = member
end
for i, name in ipairs(names) do
  local before, now = heads[i] and string.sub(heads[i], 1, 1), left[i]
  if not before and now ~= '' then put_on(4, '0', name) end
  if now == '' then take_off(4, name) end
  if now == '1' and before ~= '1' then put_on(5, '0', name) end
  if now ~= '1' and before == '1' then take_off(5, name) end
  -- By its age it is removed one day, so each writing moves it.
  if now == '0' then put_on(6, ARGV[7], ARGV[9] .. ' ' .. name) end
  if now ~= '0' and before == '0' then take_off(6, ARGV[9] .. ' ' .. name) end
end
for list = 4, 6 do
  found = (#on[list] > 0 or #off[list] > 0) and garbage(KEYS[list], 'z')
  if found then
    return found
  end
end

-- What was changed before of the bodies that are changed, and whose changes are gone.
local touched, gone = {}, {}
for i = 1, changed do
  touched[i] = ARGV[changes + i * 2 - 2]
end
for i = 1, made do
  gone[i] = ARGV[bodies + i * 2 - 2]
end
local before
before, found = fields_of(KEYS[9], touched)
found = found or (made + deletes > 0 and (garbage(KEYS[8], 'h') or (changed == 0 and garbage(KEYS[9], 'h'))))
if found then
  return found
end

-- Bytes of changes to a body beyond which they are put behind it: each change writes those before it once more.
local many = 1024
-- Changes without the one of the very fields that another one names, which takes its place. There is one at most.
local function without(lines, change)
  local names = string.sub(change, 1, string.find(change, '\n', 2, true))
  local first, last = string.find(lines, names, 1, true)
  if not first then
    return lines
  end
  return string.sub(lines, 1, first - 1) .. string.sub(lines, string.find(lines, '\n', last + 1, true) or #lines + 1)
end
local function parts_of(line)
  local parts = {}
  for part in string.gmatch(line .. '\t', '([^\t]*)\t') do
    parts[#parts + 1] = part
  end
  return parts
end
-- A body with the last change of each of its fields behind it. What is no change stays as it is, and where it is: whoever
-- reads the body names it.
local function folded(body, lines)
  local first, others = string.match(body or '{}', '^([^\n]*)(.*)$')
  others = others .. lines
  local names, values, places, length = {}, {}, {}, 0
  for those, of_those in string.gmatch(others, '\n#([^\n]*)\n([^\n]*)') do
    local fields, new = parts_of(those), parts_of(of_those)
    if #fields ~= #new then
      return first .. others
    end
    for i, field in ipairs(fields) do
      places[field] = places[field] or #names + 1
      names[places[field]], values[places[field]] = field, new[i]
    end
    length = length + #those + #of_those + 3
  end
  if length ~= #others then
    return first .. others
  end
  return first .. '\n#' .. table.concat(names, '\t') .. '\n' .. table.concat(values, '\t')
end
-- What is written of bodies that are changed.
local refolded, longer = {}, {}
for i, name in ipairs(touched) do
  local lines = ARGV[changes + i * 2 - 1]
  if before[i] then
    lines = without(before[i], lines) .. lines
  end
  if #lines <= many then
    longer[#longer + 1] = name
    longer[#longer + 1] = lines
  else
    local body = redis.pcall('HGET', KEYS[8], name)
    if type(body) == 'table' then
      return garbage(KEYS[8], 'h')
    end
    refolded[#refolded + 1] = name
    refolded[#refolded + 1] = folded(body, lines)
    gone[#gone + 1] = name
  end
end

-- A blob is kept whole or not at all.
local kept = changes + changed * 2
for i = 1, tonumber(ARGV[kept]) do
  local chunks, count, bytes = KEYS[tonumber(ARGV[kept + i * 4 - 3])], ARGV[kept + i * 4 - 2], ARGV[kept + i * 4 - 1]
  local there = 0
  for place = 0, tonumber(count) - 1 do
    local length = redis.call('HSTRLEN', chunks, place)
    there = there + (length > 0 and length or math.huge)
  end
  if there ~= tonumber(bytes) then
    return { 'INCOMPLETE', ARGV[kept + i * 4] }
  end
end

-- The first thing that is written. Scripts run one after the other, so whoever has read the newest position has
-- everything up to it.
local number = redis.pcall('INCR', KEYS[3])
if type(number) == 'table' then
  return { 'GARBAGE', KEYS[3], 'it is no number' }
end
local position = string.format('%.0f', number)

-- A stream takes nothing that is not behind every id that it ever had, so one that is ahead takes no batch. To ask it for
-- its last id brings two of its entries whole, so that shows when it is written to: first of all, so that what was
-- written until then is taken back, but for the position, which is used up.
local function ahead(stream)
  local about, last = redis.call('XINFO', 'STREAM', stream), nil
  for i = 1, #about, 2 do
    if about[i] == 'last-generated-id' then
      last = tonumber(string.match(about[i + 1], '^%d+'))
    end
  end
  local problem = 'its last id is ahead of the last position, ' .. position
  -- Positions of events end at 2^44 (`position.rs`), and there have to be some behind this one.
  if last >= 2 ^ 43 then
    return { 'GARBAGE', stream, problem }
  end
  return {
    'GARBAGE', stream, problem,
    'take out (XDEL) what XRANGE ' .. stream .. ' ' .. position .. ' + shows if it is not of Skein, and then raise the ' ..
      'position with INCRBY ' .. KEYS[3] .. ' ' .. string.format('%.0f', last - number)
  }
end

-- The operations begin here, and those on streams are the first.
local at = kept + 1 + tonumber(ARGV[kept]) * 4
-- The batch's events: the key of the stream; key of the entity's history, events.
local events, history
if ARGV[at + 1] == 'EVENTS' then
  events, history = KEYS[tonumber(ARGV[at + 2])], KEYS[tonumber(ARGV[at + 3])]
  local added = redis.pcall('XADD', events, position .. '-0',
    'entity', ARGV[9], 'version', expected + 1, 'at', ARGV[7], 'events', ARGV[at + 4])
  if type(added) == 'table' then
    return ahead(events)
  end
  redis.call('ZADD', history, expected + 1, position)
  at = at + 3 + tonumber(ARGV[at])
end
-- Its effects: of each the key of the outbox; its place in the batch, sequence, effect. If one is refused it is the first.
while ARGV[at + 1] == 'EFFECT' do
  local outbox = KEYS[tonumber(ARGV[at + 2])]
  local added = redis.pcall('XADD', outbox, position .. '-' .. ARGV[at + 3],
    'source', ARGV[9], 'epoch', ARGV[2], 'sequence', ARGV[at + 4], 'at', ARGV[7], 'effect', ARGV[at + 5])
  if type(added) == 'table' then
    if events then
      redis.call('XDEL', events, position .. '-0')
      redis.call('ZREM', history, position)
    end
    return ahead(outbox)
  end
  at = at + 3 + tonumber(ARGV[at])
end

-- Lua passes on some thousands of arguments at most.
local function in_parts(command, key, members, first, last)
  for from = first, last, 2000 do
    redis.call(command, key, unpack(members, from, math.min(from + 1999, last)))
  end
end

local perform = {
  -- A mark, unless it lies behind the stored one: the key of the entity's marks; key of their ages, member there,
  -- source, epoch, sequence.
  MARK = function(marks, ages, member, source, epoch, number)
    local stored = redis.call('HGET', marks, source)
    if stored then
      local reign, reached = string.match(stored, '^(%d+) (%d+)$')
      reign, reached = tonumber(reign), tonumber(reached)
      if reign and (reign > tonumber(epoch) or (reign == tonumber(epoch) and reached >= tonumber(number))) then
        return
      end
    end
    redis.call('HSET', marks, source, epoch .. ' ' .. number)
    redis.call('ZADD', KEYS[tonumber(ages)], ARGV[7], member)
  end,
}

in_parts('HSET', KEYS[8], ARGV, bodies, bodies + made * 2 - 1)
in_parts('HSET', KEYS[8], refolded, 1, #refolded)
in_parts('HSET', KEYS[9], longer, 1, #longer)
-- Those of the deleted in the same go: a hash that has lost its last field counts as moved while the slot of a Redis
-- Cluster is, and a script that touches it again is stopped half way.
for i = 1, deletes do
  gone[#gone + 1] = ARGV[deleted + i - 1]
end
in_parts('HDEL', KEYS[9], gone, 1, #gone)
local last_argument = #ARGV
while at <= last_argument do
  local count, command, key = tonumber(ARGV[at]), ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])]
  if perform[command] then
    perform[command](key, unpack(ARGV, at + 3, at + 2 + count))
  else
    redis.call(command, key, unpack(ARGV, at + 3, at + 2 + count))
  end
  at = at + 3 + count
end
in_parts('HSET', KEYS[7], ARGV, 11, 10 + puts * 2)
for documents = 7, 8 do
  in_parts('HDEL', KEYS[documents], ARGV, deleted, deleted + deletes - 1)
end
for list = 4, 6 do
  in_parts('ZADD', KEYS[list], on[list], 1, #on[list])
  in_parts('ZREM', KEYS[list], off[list], 1, #off[list])
end
if ARGV[8] ~= '' and tonumber(ARGV[8]) > sequence then
  sequence = tonumber(ARGV[8])
end
redis.call('HSET', KEYS[2], 'version', expected + 1, 'batch', ARGV[6], 'at', ARGV[7],
  'sequence', string.format('%.0f', sequence))
return { 'OK' }
