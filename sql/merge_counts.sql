-- A day's counts of terms added to a running vocabulary: df and cf of a term add up over parts that share no document.
-- So do the numbers of documents, which an idf needs beside them.
--
-- In:   vocabulary and day (term, df, cf; all terms, before any is left out by min_df, max_df or max_features).
-- Out:  term, df, cf.
--
-- param: vocabulary identifier vocabulary
-- param: day identifier day
--
-- Example
--   given vocabulary (term string, df bigint, cf bigint)
--     cat | 10 | 12
--     dog | 1 | 1
--   given day (term string, df bigint, cf bigint)
--     cat | 2 | 5
--     猫 | 1 | 1
--   gives
--     cat | 12 | 17
--     dog | 1 | 1
--     猫 | 1 | 1
SELECT term, sum(df) AS df, sum(cf) AS cf
FROM (
  SELECT term, df, cf FROM :vocabulary
  UNION ALL
  SELECT term, df, cf FROM :day
) c
GROUP BY term
