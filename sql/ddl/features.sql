-- An empty table FEATURES of documents with one label, as featurize.py writes its Parquet files.
--
-- param: name identifier features
CREATE TABLE IF NOT EXISTS :name (
  id string, label string, indices array<int>, `values` array<float>
) STORED AS PARQUET
