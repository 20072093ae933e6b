-- Moves one effect from the outbox to the dead letters, if it is still there. Follows check.lua.
-- KEYS: 2 the outbox; 3 the dead letters; 4 their order; 5 their ages.
-- ARGV: 4 the effect's id; 5 its position, in digits of fixed width; 6 the reason; 7 when.
local found = redis.call('XRANGE', KEYS[2], ARGV[4], ARGV[4])[1]
if found then
  local spoilt = garbage(KEYS[3] .. ':' .. ARGV[5], 'h')
  if type(spoilt) == 'table' then
    return spoilt
  end
  local letter = { 'reason', ARGV[6], 'buried_at', ARGV[7] }
  for _, part in ipairs(found[2]) do
    letter[#letter + 1] = part
  end
  redis.call('XDEL', KEYS[2], ARGV[4])
  redis.call('HSET', KEYS[3] .. ':' .. ARGV[5], unpack(letter))
  redis.call('ZADD', KEYS[4], 0, ARGV[5])
  redis.call('ZADD', KEYS[5], ARGV[7], ARGV[5])
end
return { 'OK' }
