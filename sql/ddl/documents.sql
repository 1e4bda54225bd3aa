-- An empty table DOCUMENTS, to be filled by LOAD DATA, INSERT or another job. For a bigint id say so here.
--
-- param: name identifier documents
CREATE TABLE IF NOT EXISTS :name (id string, text string, label string) STORED AS PARQUET
