-- An empty table of stop words, each as the tokenizer gives it.
--
-- param: name identifier stop_words
CREATE TABLE IF NOT EXISTS :name (word string) STORED AS PARQUET
