-- How effects leave a shard's outbox (`effects.rs`).

-- The entry with the effects of a batch, if it has one in this place and behind it.
local function entry_of(outbox, batch, place)
  return redis.call('XRANGE', outbox, batch .. '-' .. place, batch .. '-65535', 'COUNT', 1)[1]
end

local function last_place(entry)
  return tonumber(string.match(entry[1], '%d+$'))
end

-- Takes effects of one batch out, by their places, of which the last one is the highest. `taken` has under the batch's
-- position how many are left, where some of its effects are out and others are not, and a field for each that is out.
local function take_out(outbox, taken, batch, places)
  local last = tonumber(places[#places])
  local left = tonumber(redis.call('HGET', taken, batch) or '')
  if not left then
    -- Mostly it is all of them, which needs no look at the entry: its id ends with the last place.
    if #places == last + 1 and redis.call('XDEL', outbox, batch .. '-' .. last) == 1 then return end
    local entry = entry_of(outbox, batch, last)
    if not entry then return end
    left = last_place(entry) + 1
  end
  for _, place in ipairs(places) do
    left = left - redis.call('HSETNX', taken, batch .. '-' .. place, '')
  end
  if left > 0 then
    redis.call('HSET', taken, batch, left)
    return
  end
  local entry = entry_of(outbox, batch, last)
  if entry then
    redis.call('XDEL', outbox, entry[1])
    last = last_place(entry)
  end
  redis.call('HDEL', taken, batch)
  for place = 0, last do
    redis.call('HDEL', taken, batch .. '-' .. place)
  end
end
