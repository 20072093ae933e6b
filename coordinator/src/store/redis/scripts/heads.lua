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
  -- Lua passes on some thousands of arguments at most. A page has fewer, and none of its heads is touched here.
  if #documents > 0 and #documents <= 4000 then
    return redis.call('HMGET', key, unpack(documents))
  end
  local heads = {}
  for from = 1, #documents, 2000 do
    for _, head in ipairs(redis.call('HMGET', key, unpack(documents, from, math.min(from + 1999, #documents)))) do
      heads[#heads + 1] = head
    end
  end
  return heads
end
