-- Documents to TOKENS by our tokenizer, on Spark: jobs/query.py registers the function, udfs.spark.register elsewhere.
--
-- In:   documents (id, text).
-- Out:  TOKENS: id, sentence, position (in the document, from 0), token, begin_at, end_at (code points into the
--       normalised text). A document without tokens has no row.
--
-- param: documents identifier documents
--
-- Example
--   given documents (id string, text string)
--     a | Die KATZE. 猫
--     b | NULL
--   gives
--     a | 0 | 0 | die | 0 | 3
--     a | 0 | 1 | katze | 4 | 9
--     a | 1 | 2 | 猫 | 11 | 12
SELECT d.id, t.token.sentence, t.token.`position`, t.token.token, t.token.begin_at, t.token.end_at
FROM (SELECT id, tokenize(text) AS tokens FROM :documents) d
LATERAL VIEW explode(d.tokens) t AS token
