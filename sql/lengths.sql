-- Lengths of documents, in characters, at percentiles: exact ones, the length that so many percent do not exceed.
--
-- In:   documents (id, text). A null text has the length 0.
-- Out:  percent, characters.
--
-- param: documents identifier documents
--
-- Example
--   given documents (id string, text string)
--     a | 猫
--     b | abc
--     c | NULL
--     d | abcdefghij
--   gives
--     0 | 0
--     1 | 0
--     5 | 0
--     25 | 0
--     50 | 1
--     75 | 3
--     95 | 10
--     99 | 10
--     100 | 10
SELECT p.`percent`, min(l.characters) AS characters
FROM (
  SELECT characters, sum(documents) OVER (ORDER BY characters) AS reached, sum(documents) OVER () AS total
  FROM (
    SELECT coalesce(length(text), 0) AS characters, count(*) AS documents
    FROM :documents
    GROUP BY coalesce(length(text), 0)
  ) c
) l
CROSS JOIN (
  SELECT q.`percent`
  FROM (SELECT array(0, 1, 5, 25, 50, 75, 95, 99, 100) AS percents) o LATERAL VIEW explode(o.percents) q AS `percent`
) p
WHERE l.reached * 100 >= l.total * p.`percent`
GROUP BY p.`percent`
ORDER BY `percent`
