#!lua flags=allow-oom
-- Puts what comes from now on behind all that anybody may have read. What the server acknowledged in its last life may be
-- gone, and others may have read further in it than is known here: so the first to come in a life, before it takes a shard,
-- leaves a gap for all. Gives the last position as it is then; nothing where the store is another one, or was emptied.
-- KEYS: 1 the last position of all shards; 2 what says which store this is. ARGV: 1 the id of the store; 2 the life; 3 the
-- highest position that was seen; 4 how wide the gap is.
if redis.call('HGET', KEYS[2], 'id') ~= ARGV[1] then
  return false
end
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
if not last then
  return redis.error_reply('it is no number')
end
local life, position = redis.call('HGET', KEYS[2], 'life'), math.max(last, tonumber(ARGV[3]))
-- In a store into which nobody has written yet there is nothing to read. Whoever has read further than is known here comes
-- from before a copy that was restored, and was not alone in that.
if (life ~= ARGV[2] and (life or position > 0)) or tonumber(ARGV[3]) > last then
  position = position + tonumber(ARGV[4])
end
if position > last then
  redis.call('SET', KEYS[1], string.format('%.0f', position))
end
if life ~= ARGV[2] then
  redis.call('HSET', KEYS[2], 'life', ARGV[2])
end
return position
