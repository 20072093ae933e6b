-- Takes effects out of a shard's outbox. Follows check.lua and take_out.lua.
-- KEYS: 2 the outbox; 3 what is out of it while others of its batch are not. ARGV: from 4 on of each batch its position,
-- how many of its effects, and their places, the last of them the highest.
local at = 4
while at < #ARGV do
  local batch, count, places = ARGV[at], tonumber(ARGV[at + 1]), {}
  for i = 1, count do
    places[i] = ARGV[at + 1 + i]
  end
  take_out(KEYS[2], KEYS[3], batch, places)
  at = at + 2 + count
end
return { 'OK' }
