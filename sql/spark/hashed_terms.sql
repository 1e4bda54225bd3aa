-- The index of each term for hashed features, on Spark: MurmurHash3 x86_32 of its UTF-8, seed 42, modulo the size.
--
-- In:   term_counts (id, term, tf).
-- Out:  term, index.
--
-- param: term_counts identifier term_counts
-- param: size int 262144 (1 to 2147483647)
--
-- Example
--   given term_counts (id string, term string, tf bigint)
--     a | cat | 2
--     b | cat | 1
--     b | 猫 | 1
--   given size = 1000
--   gives
--     cat | 0
--     猫 | 0
SELECT term, hash_term(term, :size) AS `index`
FROM (SELECT DISTINCT term FROM :term_counts) t
