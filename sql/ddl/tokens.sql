-- An empty table TOKENS, as featurize.py --tokens writes its Parquet files.
--
-- param: name identifier tokens
CREATE TABLE IF NOT EXISTS :name (
  id string, sentence int, `position` int, token string, begin_at int, end_at int
) STORED AS PARQUET
