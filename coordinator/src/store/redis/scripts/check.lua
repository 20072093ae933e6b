-- What every write begins with: all keys hold what belongs there, and the writer still has the shard. A script that
-- fails half way is not rolled back, so nothing may be written before everything is known to be right.
-- KEYS[1] is the shard's lease. ARGV: 1 the types of the keys, a letter each, `-` for one at which the script itself looks
-- (to read it is to know its type); 2 epoch; 3 nonce.
local kinds = { h = 'hash', z = 'zset', x = 'stream', s = 'string' }
-- What tells how long a key is that holds that, and is refused where it holds something else. Asking for the type instead
-- takes nearly twice as long, for Lua gets it in a table.
local lengths = { h = 'HLEN', z = 'ZCARD', x = 'XLEN', s = 'STRLEN' }

-- Nothing, or that a key holds something else.
local function garbage(key, kind)
  local length = redis.pcall(lengths[kind], key)
  if type(length) == 'number' then
    return
  end
  local wanted, found = kinds[kind], redis.call('TYPE', key).ok
  if found == wanted then
    return length
  end
  return { 'GARBAGE', key, 'it holds a ' .. found .. ' where a ' .. wanted .. ' belongs' }
end

local lease = redis.pcall('HMGET', KEYS[1], 'epoch', 'nonce')
if lease.err then
  return garbage(KEYS[1], 'h')
end
for i, key in ipairs(KEYS) do
  local kind = string.sub(ARGV[1], i, i)
  local found = kind ~= '-' and garbage(key, kind)
  if found then
    return found
  end
end
if lease[1] ~= ARGV[2] or lease[2] ~= ARGV[3] then
  return { 'FENCED', lease[1] or '0' }
end
