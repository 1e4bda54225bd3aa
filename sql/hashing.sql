-- Hashed features: counts by the hash of the term, without a vocabulary; terms that share an index add up.
--
-- In:   term_counts (id, term, tf), hashed_terms (term, index; by spark/hashed_terms.sql or hive/hashed_terms.sql).
-- Out:  id, index, value.
--
-- param: term_counts identifier term_counts
-- param: hashed_terms identifier hashed_terms
--
-- Example
--   given term_counts (id string, term string, tf bigint)
--     a | cat | 2
--     a | dog | 1
--     b | ox | 1
--   given hashed_terms (term string, index int)
--     cat | 7
--     dog | 7
--     ox | 0
--   gives
--     a | 7 | 3.0
--     b | 0 | 1.0
SELECT c.id, h.`index`, cast(sum(c.tf) AS double) AS value
FROM :term_counts c
JOIN :hashed_terms h ON c.term = h.term
GROUP BY c.id, h.`index`
