-- What live.lua and load.lua begin with.

-- Whether the shard is held under another fence than the one that is named, if one is.
local function is_anothers(lease, epoch, nonce)
  if not epoch then
    return false
  end
  local held = redis.call('HMGET', lease, 'epoch', 'nonce')
  return held[1] ~= epoch or held[2] ~= nonce
end

-- The heads of documents, as one hash has them, in the order of the documents.
local function heads_of(key, documents)
  local heads = {}
  -- Lua passes on some thousands of arguments at most.
  for from = 1, #documents, 2000 do
    for _, head in ipairs(redis.call('HMGET', key, unpack(documents, from, math.min(from + 1999, #documents)))) do
      heads[#heads + 1] = head
    end
  end
  return heads
end
