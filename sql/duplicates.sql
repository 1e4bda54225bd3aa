-- Texts that occur more than once, exactly as they are.
--
-- In:   documents (id, text). Null and empty texts are left out.
-- Out:  first_id, documents (how many have the text), characters; the most frequent first.
--
-- param: documents identifier documents
--
-- Example
--   given documents (id string, text string)
--     b | 猫 cat
--     a | 猫 cat
--     c | cat
--     d | ""
--     e | ""
--   gives
--     a | 2 | 5
SELECT first_id, documents, characters
FROM (
  SELECT md5(text) AS content, min(id) AS first_id, count(*) AS documents, max(length(text)) AS characters
  FROM :documents
  WHERE text <> ''
  GROUP BY md5(text)
  HAVING count(*) > 1
) t
ORDER BY documents DESC, first_id
