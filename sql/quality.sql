-- What to look at before anything is computed: documents without id, text or label, blank ones, and repetitions.
--
-- In:   documents (id, text, label).
-- Out:  line, measure, documents.
--
-- Blank is a text of white space alone. Repeated is each document beyond the first with that id, or with that text;
-- null, empty and blank texts are no repetitions.
--
-- param: documents identifier documents
--
-- Example
--   given documents (id string, text string, label string)
--     a | cat | x
--     a | cat | NULL
--     b | NULL | x
--     NULL | " 　" | x
--     d | "" | x
--   gives
--     1 | documents | 5
--     2 | without id | 1
--     3 | with a repeated id | 1
--     4 | without label | 1
--     5 | without text | 1
--     6 | with an empty text | 1
--     7 | with a blank text | 1
--     8 | with a repeated text | 1
SELECT m.line, m.measure, m.documents
FROM (
  SELECT count(*) AS documents,
    count(*) - count(id) AS no_id,
    count(id) - count(DISTINCT id) AS repeated_ids,
    count(*) - count(label) AS no_label,
    count(*) - count(text) AS no_text,
    count(CASE WHEN text = '' THEN 1 END) AS empty_texts,
    count(CASE WHEN text <> '' AND words = '' THEN 1 END) AS blank_texts,
    count(CASE WHEN words <> '' THEN 1 END) - count(DISTINCT CASE WHEN words <> '' THEN md5(text) END) AS repeated_texts
  FROM (
    SELECT id, label, text, translate(text, decode(unhex(concat(
      '090a0b0c0d20c285c2a0e19a80e28080e28081e28082e28083e28084e28085e28086e28087e28088e28089e2808a',
      'e280a8e280a9e280afe2819fe38080'
    )), 'UTF-8'), '') AS words
    FROM :documents
  ) t
) c
LATERAL VIEW stack(8,
  1, 'documents', documents,
  2, 'without id', no_id,
  3, 'with a repeated id', repeated_ids,
  4, 'without label', no_label,
  5, 'without text', no_text,
  6, 'with an empty text', empty_texts,
  7, 'with a blank text', blank_texts,
  8, 'with a repeated text', repeated_texts
) m AS line, measure, documents
ORDER BY line
