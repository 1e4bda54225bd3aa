-- Bagging: the label that most models give a document. Of labels with as many votes the one with the higher mean score
-- wins, and of those the first by code points.
--
-- In:   scores (SCORES of all models in one table: id, label, score).
-- Out:  id, label, votes, share (of the models).
--
-- param: scores identifier scores
--
-- Example
--   given scores (id string, label string, score double, probabilities array<double>)
--     a | ham | 0.6 | [0.6, 0.4]
--     a | spam | 0.9 | [0.1, 0.9]
--     a | ham | 0.7 | [0.7, 0.3]
--     b | ham | 0.5 | [0.5, 0.5]
--     b | spam | 0.8 | [0.2, 0.8]
--   gives
--     a | ham | 2 | 0.6666666666666666
--     b | spam | 1 | 0.5
SELECT id, label, votes, votes / models AS share
FROM (
  SELECT id, label, votes,
    sum(votes) OVER (PARTITION BY id) AS models,
    row_number() OVER (PARTITION BY id ORDER BY votes DESC, score DESC, label) AS place
  FROM (
    SELECT id, label, count(*) AS votes, round(avg(score), 9) AS score FROM :scores GROUP BY id, label
  ) v
) w
WHERE place = 1
