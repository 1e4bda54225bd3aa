-- Hashed features: counts by the hash of the term, without a vocabulary; terms that share an index add up. The index is
-- that of the main job and of Spark ML: MurmurHash3 modulo the size.
--
-- In:   term_counts (id, term, tf), term_hashes (term, murmur3).
-- Out:  id, index, value.
--
-- param: term_counts identifier term_counts
-- param: term_hashes identifier term_hashes
-- param: size int 262144 (1 to 2147483647)
--
-- Example
--   given term_counts (id string, term string, tf bigint)
--     a | cat | 2
--     a | dog | 1
--     b | ox | 1
--   given term_hashes (term string, murmur3 int)
--     cat | 107
--     dog | -93
--     ox | 200
--   given size = 100
--   gives
--     a | 7 | 3.0
--     b | 0 | 1.0
SELECT c.id, pmod(h.murmur3, :size) AS `index`, cast(sum(c.tf) AS double) AS value
FROM :term_counts c
JOIN :term_hashes h ON c.term = h.term
GROUP BY c.id, pmod(h.murmur3, :size)
