-- The MurmurHash3 of each term (32 bits, seed 42), on Spark: jobs/query.py registers the function, udfs.spark.register
-- elsewhere.
--
-- In:   term_counts (id, term, tf).
-- Out:  term, murmur3.
--
-- param: term_counts identifier term_counts
--
-- Example
--   given term_counts (id string, term string, tf bigint)
--     a | cat | 2
--     b | cat | 1
--     b | 猫 | 1
--   gives
--     cat | -77977549
--     猫 | 1504305328
SELECT term, murmur3(term) AS murmur3
FROM (SELECT DISTINCT term FROM :term_counts) t
