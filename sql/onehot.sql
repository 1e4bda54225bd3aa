-- One-hot features: 1 for each term of the vocabulary that a document holds.
--
-- In:   term_counts (id, term, tf), vocabulary (index, term, df, cf).
-- Out:  id, index, value.
--
-- param: term_counts identifier term_counts
-- param: vocabulary identifier vocabulary
--
-- Example
--   given term_counts (id string, term string, tf bigint)
--     a | cat | 2
--     a | zebra | 1
--     b | dog | 1
--   given vocabulary (index int, term string, df bigint, cf bigint)
--     0 | cat | 1 | 2
--     1 | dog | 1 | 1
--   gives
--     a | 0 | 1.0
--     b | 1 | 1.0
SELECT c.id, v.`index`, cast(1 AS double) AS value
FROM :term_counts c
JOIN :vocabulary v ON c.term = v.term
