-- How often two tokens stand near each other in a sentence.
--
-- In:   tokens (TOKENS; or kept_tokens).
-- Out:  token_a, token_b (token_a comes first by code points), pairs.
--
-- reach: how many positions apart they may be, 1 for neighbours.
--
-- param: tokens identifier tokens
-- param: reach int 5 (1 to 100)
--
-- Example
--   given tokens (id string, sentence int, position int, token string, begin_at int, end_at int)
--     a | 0 | 0 | red | 0 | 3
--     a | 0 | 1 | cat | 4 | 7
--     a | 0 | 2 | red | 8 | 11
--     a | 1 | 3 | cat | 13 | 16
--   given reach = 1
--   gives
--     cat | red | 2
SELECT least(a.token, b.token) AS token_a, greatest(a.token, b.token) AS token_b, count(*) AS pairs
FROM (
  SELECT t.id, t.sentence, t.token, t.`position` + o.apart + 1 AS reached
  FROM :tokens t
  LATERAL VIEW posexplode(split(space(:reach - 1), ' ')) o AS apart, nothing
) a
JOIN :tokens b ON a.id = b.id AND a.sentence = b.sentence AND a.reached = b.`position`
WHERE a.token <> b.token
GROUP BY least(a.token, b.token), greatest(a.token, b.token)
