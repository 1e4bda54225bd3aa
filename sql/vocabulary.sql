-- The terms that features are made of, with the number of documents that hold each (df) and of its occurrences (cf).
-- Of the terms within min_df and max_df the most frequent stay; of equally frequent ones the first by code points.
--
-- In:   term_counts (id, term, tf), documents (id).
-- Out:  index (from 0, in order of terms), term, df, cf.
--
-- param: term_counts identifier term_counts
-- param: documents identifier documents
-- param: min_df int 1
-- param: max_df double 1.0 (0 to 1)
-- param: max_features int 1048576 (1 to 2147483647)
--
-- Example
--   given term_counts (id string, term string, tf bigint)
--     a | the | 3
--     a | cat | 1
--     b | the | 1
--     b | dog | 1
--     c | cat | 1
--     c | the | 2
--   given documents (id string, text string)
--     a | the the the cat
--     b | the dog
--     c | cat the the
--     d | NULL
--   given max_df = 0.5
--   given max_features = 1
--   gives
--     0 | cat | 2 | 2
SELECT row_number() OVER (ORDER BY term) - 1 AS `index`, term, df, cf
FROM (
  SELECT c.term, c.df, c.cf
  FROM (SELECT term, count(*) AS df, sum(tf) AS cf FROM :term_counts GROUP BY term) c
  CROSS JOIN (SELECT count(*) AS n FROM :documents) d
  WHERE c.df >= :min_df AND cast(c.df AS double) <= :max_df * d.n
  ORDER BY cf DESC, term
  LIMIT :max_features
) chosen
