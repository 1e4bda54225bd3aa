-- How many documents have each label, and their share; null is a label of its own.
--
-- In:   documents (id, label).
-- Out:  label, documents, share; the most frequent first, equally frequent ones by code points, null last.
--
-- param: documents identifier documents
--
-- Example
--   given documents (id string, text string, label string)
--     a | x | ham
--     b | x | spam
--     c | x | ham
--     d | x | NULL
--   gives
--     ham | 2 | 0.5
--     spam | 1 | 0.25
--     NULL | 1 | 0.25
SELECT l.label, l.documents, l.documents / s.documents AS share
FROM (SELECT label, count(*) AS documents FROM :documents GROUP BY label) l
CROSS JOIN (SELECT count(*) AS documents FROM :documents) s
ORDER BY documents DESC, CASE WHEN label IS NULL THEN 1 ELSE 0 END, label
