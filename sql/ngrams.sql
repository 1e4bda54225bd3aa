-- Terms of one to five tokens, joined by spaces; none reaches over the end of a sentence or over a removed token.
--
-- In:   tokens (TOKENS; or kept_tokens, without stop words).
-- Out:  id, position (of the first token), tokens (how many), term.
--
-- param: tokens identifier tokens
-- param: least int 1 (1 to 5)
-- param: most int 1 (1 to 5)
--
-- Example
--   given tokens (id string, sentence int, position int, token string, begin_at int, end_at int)
--     a | 0 | 0 | big | 0 | 3
--     a | 0 | 1 | red | 4 | 7
--     a | 0 | 3 | cat | 11 | 14
--     a | 1 | 4 | it | 16 | 18
--     a | 1 | 5 | ran | 19 | 22
--   given least = 1
--   given most = 2
--   gives
--     a | 0 | 1 | big
--     a | 0 | 2 | big red
--     a | 1 | 1 | red
--     a | 3 | 1 | cat
--     a | 4 | 1 | it
--     a | 4 | 2 | it ran
--     a | 5 | 1 | ran
SELECT w.id, w.`position`, g.i + 1 AS tokens, g.term
FROM (
  SELECT id, `position`, token,
    lead(`position`, 1) OVER s AS p1, lead(token, 1) OVER s AS t1,
    lead(`position`, 2) OVER s AS p2, lead(token, 2) OVER s AS t2,
    lead(`position`, 3) OVER s AS p3, lead(token, 3) OVER s AS t3,
    lead(`position`, 4) OVER s AS p4, lead(token, 4) OVER s AS t4
  FROM :tokens
  WINDOW s AS (PARTITION BY id, sentence ORDER BY `position`)
) w
LATERAL VIEW posexplode(array(
  token,
  CASE WHEN p1 = `position` + 1 THEN concat_ws(' ', token, t1) END,
  CASE WHEN p2 = `position` + 2 THEN concat_ws(' ', token, t1, t2) END,
  CASE WHEN p3 = `position` + 3 THEN concat_ws(' ', token, t1, t2, t3) END,
  CASE WHEN p4 = `position` + 4 THEN concat_ws(' ', token, t1, t2, t3, t4) END
)) g AS i, term
WHERE g.term IS NOT NULL AND g.i + 1 BETWEEN :least AND :most
