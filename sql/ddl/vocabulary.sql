-- An empty table of terms with their numbers of documents and occurrences, as a model's vocabulary.parquet has them.
--
-- param: name identifier vocabulary
CREATE TABLE IF NOT EXISTS :name (`index` int, term string, df bigint, cf bigint) STORED AS PARQUET
