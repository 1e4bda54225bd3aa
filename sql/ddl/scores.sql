-- An empty table SCORES, the labels that models give to documents.
--
-- param: name identifier scores
CREATE TABLE IF NOT EXISTS :name (
  id string, label string, score double, probabilities array<double>
) STORED AS PARQUET
