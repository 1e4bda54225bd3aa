-- Features of a document in one row, as the main job writes them: also of documents without any.
--
-- In:   documents (id, label), weights (id, index, value: of onehot, count, tfidf, bm25 or hashing).
-- Out:  FEATURES: id, label, indices array<int> in ascending order, values array<float>.
--
-- param: documents identifier documents
-- param: weights identifier tfidf
--
-- Example
--   given documents (id string, text string, label string)
--     a | cat dog | x
--     b | NULL | NULL
--   given tfidf (id string, index int, value double)
--     a | 3 | 0.75
--     a | 1 | 0.25
--   gives
--     a | x | [1, 3] | [0.25, 0.75]
--     b | NULL | [] | []
SELECT id, label, entries.`index` AS indices, entries.value AS `values`
FROM (
  SELECT d.id, d.label, sort_array(collect_list(
    CASE WHEN w.id IS NOT NULL THEN
      named_struct('index', cast(w.`index` AS int), 'value', cast(w.value AS float))
    END
  )) AS entries
  FROM :documents d
  LEFT JOIN :weights w ON d.id = w.id
  GROUP BY d.id, d.label
) f
