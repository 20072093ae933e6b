-- Writes a chunk of a blob that no batch has kept yet. Follows check.lua.
-- KEYS: 2 the chunks; 3 the entity's blobs that are kept; 4 those of the shard that are not.
-- ARGV: 4 the blob; 5 the entity's name; 6 the chunk's place; 7 its time; 8 its bytes.
if redis.call('HEXISTS', KEYS[3], ARGV[4]) == 0 then
  redis.call('HSET', KEYS[2], ARGV[6], ARGV[8])
  redis.call('ZADD', KEYS[4], ARGV[7], ARGV[5] .. ' ' .. ARGV[4])
end
return { 'OK' }
