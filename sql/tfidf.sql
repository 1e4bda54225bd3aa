-- TF-IDF features: tf times idf, over the norm of the document's row. n counts all documents, empty ones too.
--
-- idf:  smooth ln((1 + n) / (1 + df)) + 1, plain ln(n / df) + 1 (both scikit-learn's), ml ln((n + 1) / (df + 1))
--       (Spark ML's).
-- In:   term_counts (id, term, tf), vocabulary (index, term, df, cf), documents (id).
-- Out:  id, index, value.
--
-- param: term_counts identifier term_counts
-- param: vocabulary identifier vocabulary
-- param: documents identifier documents
-- param: idf string smooth (smooth|plain|ml)
-- param: sublinear_tf int 0 (0 to 1)
-- param: norm string l2 (l2|l1|none)
--
-- Example
--   given term_counts (id string, term string, tf bigint)
--     a | cat | 2
--     a | dog | 1
--     b | dog | 3
--   given vocabulary (index int, term string, df bigint, cf bigint)
--     0 | cat | 1 | 2
--     1 | dog | 2 | 4
--   given documents (id string, text string)
--     a | cat cat dog
--     b | dog dog dog
--   gives
--     a | 0 | 0.9421556246632359
--     a | 1 | 0.33517574332792605
--     b | 1 | 1.0
SELECT id, `index`, weight / CASE WHEN total > 0 THEN total ELSE 1 END AS value
FROM (
  SELECT id, `index`, weight,
    CASE :norm
      WHEN 'l2' THEN sqrt(sum(weight * weight) OVER r)
      WHEN 'l1' THEN sum(abs(weight)) OVER r
      ELSE 1
    END AS total
  FROM (
    SELECT c.id, v.`index`,
      CASE WHEN :sublinear_tf = 1 THEN 1 + ln(c.tf) ELSE cast(c.tf AS double) END *
      CASE :idf
        WHEN 'smooth' THEN ln((1 + d.n) / (1 + v.df)) + 1
        WHEN 'plain' THEN ln(d.n / v.df) + 1
        ELSE ln((d.n + 1) / (v.df + 1))
      END AS weight
    FROM :term_counts c
    JOIN :vocabulary v ON c.term = v.term
    CROSS JOIN (SELECT count(*) AS n FROM :documents) d
  ) w
  -- Not in order of the index: over such a frame Hive 4.0.1 adds up wrongly on Tez, where it vectorises windows.
  WINDOW r AS (PARTITION BY id)
) s
