-- The documents that answer a query best by BM25: those with the largest sum of the values of the query's words.
--
-- In:   bm25 (id, index, value), vocabulary (index, term, df, cf).
-- Out:  rank (from 1), id, score; of equal scores the first by id.
--
-- words: terms of the vocabulary with spaces between, so in lower case; other words find nothing.
--
-- param: bm25 identifier bm25
-- param: vocabulary identifier vocabulary
-- param: words string
-- param: best int 10 (1 to 1000000)
--
-- Example
--   given bm25 (id string, index int, value double)
--     a | 0 | 0.5
--     b | 0 | 0.25
--     b | 1 | 0.75
--     c | 1 | 0.5
--   given vocabulary (index int, term string, df bigint, cf bigint)
--     0 | cat | 2 | 2
--     1 | 狗 | 2 | 2
--   given words = cat 狗 zebra
--   given best = 2
--   gives
--     1 | b | 1.0
--     2 | a | 0.5
SELECT row_number() OVER (ORDER BY rounded DESC, id) AS `rank`, id, score
FROM (
  SELECT f.id, sum(f.value) AS score, round(sum(f.value), 9) AS rounded
  FROM (SELECT w.term FROM (SELECT :words AS words) q LATERAL VIEW explode(split(q.words, '[ ]+')) w AS term) a
  JOIN :vocabulary v ON a.term = v.term
  JOIN :bm25 f ON f.`index` = v.`index`
  GROUP BY f.id
  ORDER BY rounded DESC, id
  LIMIT :best
) found
ORDER BY `rank`
