-- The terms that tell a label from the others: by the log of the odds that a document of the label holds the term, over
-- the odds for other documents, each number of documents plus 1/2.
--
-- In:   term_counts (id, term, tf), documents (id, label). Documents without a label are left out.
-- Out:  label, rank (from 1), term, df (documents of the label that hold it), others (other documents that do), score.
--
-- param: term_counts identifier term_counts
-- param: documents identifier documents
-- param: min_df int 2 (1 to 9223372036854775807)
-- param: terms int 10 (1 to 1000000)
--
-- Example
--   given term_counts (id string, term string, tf bigint)
--     a | free | 2
--     b | free | 1
--     b | cat | 1
--     c | cat | 1
--     d | cat | 4
--   given documents (id string, text string, label string)
--     a | free free | spam
--     b | free cat | spam
--     c | cat | ham
--     d | cat cat cat cat | ham
--   given terms = 1
--   gives
--     ham | 1 | cat | 2 | 1 | 1.6094379124341003
--     spam | 1 | free | 2 | 0 | 3.2188758248682006
SELECT label, `rank`, term, df, others, score
FROM (
  SELECT label, term, df, others, score,
    row_number() OVER (PARTITION BY label ORDER BY round(score, 9) DESC, term) AS `rank`
  FROM (
    SELECT t.label, t.term, t.df, a.df - t.df AS others,
      ln((t.df + 0.5D) / (l.n - t.df + 0.5D)) - ln((a.df - t.df + 0.5D) / (s.n - l.n - a.df + t.df + 0.5D)) AS score
    FROM (
      SELECT d.label, c.term, count(*) AS df
      FROM :term_counts c JOIN :documents d ON c.id = d.id
      WHERE d.label IS NOT NULL
      GROUP BY d.label, c.term
    ) t
    JOIN (
      SELECT c.term, count(*) AS df
      FROM :term_counts c JOIN :documents d ON c.id = d.id
      WHERE d.label IS NOT NULL
      GROUP BY c.term
    ) a ON t.term = a.term
    JOIN (SELECT label, count(*) AS n FROM :documents WHERE label IS NOT NULL GROUP BY label) l ON t.label = l.label
    CROSS JOIN (SELECT count(*) AS n FROM :documents WHERE label IS NOT NULL) s
    WHERE t.df >= :min_df
  ) scored
) ranked
WHERE `rank` <= :terms
ORDER BY label, `rank`
