-- How often each document holds each of its terms: bag of words, or of n-grams.
--
-- In:   ngrams (id, term).
-- Out:  id, term, tf.
--
-- param: ngrams identifier ngrams
--
-- Example
--   given ngrams (id string, position int, tokens int, term string)
--     a | 0 | 1 | cat
--     a | 1 | 1 | sat
--     a | 2 | 1 | cat
--     b | 0 | 1 | cat
--   gives
--     a | cat | 2
--     a | sat | 1
--     b | cat | 1
SELECT id, term, count(*) AS tf
FROM :ngrams
GROUP BY id, term
