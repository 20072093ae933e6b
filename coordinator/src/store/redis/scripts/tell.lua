#!lua flags=allow-oom
-- Writes down an incident, of which some are kept. That there is no room is no reason to forget what was lost.
-- KEYS: 1 the incidents. ARGV: 1 the incident; 2 how many are kept.
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
return 'OK'
