-- Documents to TOKENS by our tokenizer, on Hive: by TRANSFORM, in hexadecimal both ways, so that no tab or line end in a
-- text breaks a row. The session needs `ADD ARCHIVE` of environment.tgz and textmill.zip (jobs/query.py: --resource).
--
-- In:   documents (id, text).
-- Out:  TOKENS: id (a string), sentence, position (in the document, from 0), token, begin_at, end_at (code points into
--       the normalised text). A document without tokens has no row.
--
-- param: documents identifier documents
SELECT decode(unhex(t.id), 'UTF-8') AS id, t.sentence, t.`position`, decode(unhex(t.token), 'UTF-8') AS token,
  t.begin_at, t.end_at
FROM (
  SELECT TRANSFORM(hex(cast(id AS string)), hex(text))
    USING 'environment.tgz/bin/python textmill.zip/udfs/hive.py tokens'
    AS (id string, sentence int, `position` int, token string, begin_at int, end_at int)
  FROM :documents
) t
