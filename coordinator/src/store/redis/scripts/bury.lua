-- Moves one effect from the outbox to the dead letters, if it is still there. Follows check.lua and take_out.lua.
-- KEYS: 2 the outbox; 3 what is out of it while others of its batch are not; 4 the dead letters; 5 their order; 6 their
-- ages. ARGV: 4 the position of its batch; 5 its place there; 6 its position, in digits of fixed width; 7 when; from 8 on
-- the letter's other fields and what they hold.
local batch, place, position, at = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
if entry_of(KEYS[2], batch, place) and redis.call('HEXISTS', KEYS[3], batch .. '-' .. place) == 0 then
  local spoilt = garbage(KEYS[4] .. ':' .. position, 'h')
  if type(spoilt) == 'table' then
    return spoilt
  end
  take_out(KEYS[2], KEYS[3], batch, { place })
  redis.call('HSET', KEYS[4] .. ':' .. position, 'buried_at', at, unpack(ARGV, 8))
  redis.call('ZADD', KEYS[5], 0, position)
  redis.call('ZADD', KEYS[6], at, position)
end
return { 'OK' }
