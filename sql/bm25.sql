-- BM25 features: ln(1 + (n - df + 1/2) / (df + 1/2)) * tf (k1 + 1) / (tf + k1 (1 - b + b * length / mean length)).
-- A document's length is the number of its tokens, whether the vocabulary has them or not.
--
-- In:   term_counts (id, term, tf), vocabulary (index, term, df, cf), tokens (TOKENS), documents (id).
-- Out:  id, index, value.
--
-- param: term_counts identifier term_counts
-- param: vocabulary identifier vocabulary
-- param: tokens identifier tokens
-- param: documents identifier documents
-- param: k1 double 1.2 (0 to 1000)
-- param: b double 0.75 (0 to 1)
--
-- Example
--   given term_counts (id string, term string, tf bigint)
--     a | cat | 1
--     b | dog | 1
--     b | cat | 1
--   given vocabulary (index int, term string, df bigint, cf bigint)
--     0 | cat | 2 | 2
--     1 | dog | 1 | 1
--   given tokens (id string, sentence int, position int, token string, begin_at int, end_at int)
--     a | 0 | 0 | cat | 0 | 3
--     b | 0 | 0 | dog | 0 | 3
--     b | 0 | 1 | cat | 4 | 7
--   given documents (id string, text string)
--     a | cat
--     b | dog cat
--     c | NULL
--   gives
--     a | 0 | 0.47000362924573563
--     b | 0 | 0.3335509626905221
--     b | 1 | 0.6960723731050961
SELECT c.id, v.`index`,
  ln(1 + (s.n - v.df + 0.5D) / (v.df + 0.5D)) *
  (c.tf * (:k1 + 1) / (c.tf + :k1 * (1 - :b + :b * l.length / s.mean))) AS value
FROM :term_counts c
JOIN :vocabulary v ON c.term = v.term
JOIN (SELECT id, count(*) AS length FROM :tokens GROUP BY id) l ON c.id = l.id
CROSS JOIN (
  SELECT n, tokens / n AS mean
  FROM (SELECT count(*) AS n FROM :documents) d
  CROSS JOIN (SELECT count(*) AS tokens FROM :tokens) t
) s
