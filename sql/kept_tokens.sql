-- Tokens without stop words. Those that stay keep their position, so that n-grams do not reach over a gap.
--
-- In:   tokens (TOKENS), stop_words (word, as the tokenizer gives it).
-- Out:  TOKENS: id, sentence, position, token, begin_at, end_at.
--
-- param: tokens identifier tokens
-- param: stop_words identifier stop_words
--
-- Example
--   given tokens (id string, sentence int, position int, token string, begin_at int, end_at int)
--     a | 0 | 0 | the | 0 | 3
--     a | 0 | 1 | cat | 4 | 7
--     a | 0 | 2 | 的 | 8 | 9
--   given stop_words (word string)
--     the
--     的
--     的
--   gives
--     a | 0 | 1 | cat | 4 | 7
SELECT t.id, t.sentence, t.`position`, t.token, t.begin_at, t.end_at
FROM :tokens t
LEFT JOIN (SELECT DISTINCT word FROM :stop_words) s ON t.token = s.word
WHERE s.word IS NULL
