-- One batch of one entity. Follows check.lua.
-- KEYS: 2 the shard's last position; 3 the entity; 4 the last position of all shards; the others as the operations
-- name them.
-- ARGV: 4 the version it builds on; 5 its id; 6 its time; 7 the last sequence of its effects, or nothing; then the
-- operations: how many arguments, command, number of the key, arguments.
local expected = tonumber(ARGV[4])
local entity = redis.call('HMGET', KEYS[3], 'version', 'batch', 'sequence')
local version, sequence = tonumber(entity[1] or '0'), tonumber(entity[3] or '0')
local last, newest = tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(redis.call('GET', KEYS[4]) or '0')
if not version or not sequence then
  return { 'GARBAGE', KEYS[3], 'its version or sequence is no number' }
end
if not last or not newest then
  return { 'GARBAGE', last and KEYS[4] or KEYS[2], 'it is no number' }
end
if version == expected + 1 and entity[2] == ARGV[5] then
  -- Written again, so that what waits for replicas after this waits for the first writing too.
  redis.call('HSET', KEYS[3], 'batch', ARGV[5])
  return { 'OK' }
end
if version ~= expected then
  return { 'CONFLICT', tostring(version) }
end
-- Scripts run one after the other, so whoever has read the newest position has everything up to it.
local position = string.format('%.0f', math.max(last, newest) + 1)

local perform = {
  -- The batch's events: the key of the stream; key of the entity's history, name of the entity, events.
  EVENTS = function(stream, history, name, events)
    redis.call('XADD', stream, position .. '-0', 'entity', name, 'version', expected + 1, 'at', ARGV[6], 'events', events)
    redis.call('ZADD', KEYS[tonumber(history)], expected + 1, position)
  end,
  -- One effect: the key of the outbox; its place in the batch, source, sequence, effect.
  EFFECT = function(outbox, place, source, number, effect)
    redis.call('XADD', outbox, position .. '-' .. place,
      'source', source, 'epoch', ARGV[2], 'sequence', number, 'at', ARGV[6], 'effect', effect)
  end,
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
    redis.call('ZADD', KEYS[tonumber(ages)], ARGV[6], member)
  end,
}

local at = 8
while at <= #ARGV do
  local count, command, key = tonumber(ARGV[at]), ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])]
  if perform[command] then
    perform[command](key, unpack(ARGV, at + 3, at + 2 + count))
  else
    redis.call(command, key, unpack(ARGV, at + 3, at + 2 + count))
  end
  at = at + 3 + count
end
redis.call('SET', KEYS[2], position)
redis.call('SET', KEYS[4], position)
redis.call('HSET', KEYS[3], 'version', expected + 1, 'batch', ARGV[5], 'at', ARGV[6])
if ARGV[7] ~= '' and tonumber(ARGV[7]) > sequence then
  redis.call('HSET', KEYS[3], 'sequence', ARGV[7])
end
return { 'OK' }
