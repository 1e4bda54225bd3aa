-- Words of documents by built-in functions alone: what stands between spaces, tabs and line ends, as it stands there.
--
-- In:   documents (id, text).
-- Out:  id, position (from 0), token. A document without a word, empty or null, keeps one row, of nulls.
--
-- For the words of the main job, in their normal form and of any script, see spark/tokens.sql and hive/tokens.sql.
--
-- param: documents identifier documents
--
-- Example
--   given documents (id string, text string)
--     a | The cat,  the 猫
--     b | " "
--     c | NULL
--   gives
--     a | 0 | The
--     a | 1 | cat,
--     a | 2 | the
--     a | 3 | 猫
--     b | NULL | NULL
--     c | NULL | NULL
SELECT d.id, w.`position`, w.token
FROM (
  SELECT id, trim(translate(text, decode(unhex('090a0d'), 'UTF-8'), '   ')) AS text FROM :documents
) d
LATERAL VIEW OUTER posexplode(CASE WHEN d.text <> '' THEN split(d.text, '[ ]+') END) w AS `position`, token
