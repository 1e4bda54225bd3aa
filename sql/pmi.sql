-- Pointwise mutual information of tokens that stand near each other: ln(p(a, b) / (p(a) p(b))) (Church and Hanks 1990),
-- over all pairs of cooccurrence, each in both directions.
--
-- In:   cooccurrence (token_a, token_b, pairs).
-- Out:  token_a, token_b, pairs, pmi.
--
-- min_pairs: pairs that are seen less often are left out of the result.
--
-- param: cooccurrence identifier cooccurrence
-- param: min_pairs int 5 (1 to 9223372036854775807)
--
-- Example
--   given cooccurrence (token_a string, token_b string, pairs bigint)
--     cat | red | 2
--     cat | dog | 1
--     dog | ran | 1
--   given min_pairs = 2
--   gives
--     cat | red | 2 | 0.9808292530117262
SELECT c.token_a, c.token_b, c.pairs, ln(cast(c.pairs AS double) * s.total / a.pairs / b.pairs) AS pmi
FROM :cooccurrence c
JOIN (
  SELECT token, sum(pairs) AS pairs
  FROM (
    SELECT token_a AS token, pairs FROM :cooccurrence
    UNION ALL
    SELECT token_b AS token, pairs FROM :cooccurrence
  ) both_a
  GROUP BY token
) a ON c.token_a = a.token
JOIN (
  SELECT token, sum(pairs) AS pairs
  FROM (
    SELECT token_a AS token, pairs FROM :cooccurrence
    UNION ALL
    SELECT token_b AS token, pairs FROM :cooccurrence
  ) both_b
  GROUP BY token
) b ON c.token_b = b.token
CROSS JOIN (SELECT 2 * sum(pairs) AS total FROM :cooccurrence) s
WHERE c.pairs >= :min_pairs
