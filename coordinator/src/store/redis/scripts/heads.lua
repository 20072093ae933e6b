-- The heads of documents, as one hash has them, in the order of the documents. What live.lua and load.lua begin with.
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
