"""The peers of featurize, each a program: peers.py spark-ml|scikit-learn INPUT OUTPUT TERMS [OPTION …].

Options: hashed, cached (spark-ml); characters (scikit-learn).
"""

from __future__ import annotations

import os
import sys


def spark_ml(source: str, out: str, terms: int, hashed: bool, cached: bool) -> None:
    """RegexTokenizer with scikit-learn's tokens, CountVectorizer or HashingTF, IDF; id, label, features to Parquet."""
    from pyspark import StorageLevel
    from pyspark.ml.feature import IDF, CountVectorizer, HashingTF, RegexTokenizer
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("spark-ml").getOrCreate()
    cut = RegexTokenizer(inputCol="text", outputCol="tokens", pattern=r"(?U)\w\w+", gaps=False, toLowercase=True)
    tokens = cut.transform(spark.read.parquet(source)).select("id", "label", "tokens")
    if cached:
        tokens = tokens.persist(StorageLevel.MEMORY_AND_DISK)
    if hashed:
        counter = HashingTF(inputCol="tokens", outputCol="counts", numFeatures=terms)
    else:
        counter = CountVectorizer(inputCol="tokens", outputCol="counts", vocabSize=terms).fit(tokens)
    counts = counter.transform(tokens)
    weighed = IDF(inputCol="counts", outputCol="features").fit(counts).transform(counts)
    weighed.select("id", "label", "features").write.parquet(out)
    spark.stop()


def scikit_learn(source: str, out: str, terms: int, characters: bool) -> None:
    """TfidfVectorizer on one core; id, label and the sparse rows as two list columns to Parquet."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from sklearn.feature_extraction.text import TfidfVectorizer

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    table = pq.read_table(source, use_threads=False)
    cut = {"analyzer": "char", "ngram_range": (3, 5)} if characters else {}
    matrix = TfidfVectorizer(max_features=terms, **cut).fit_transform(table["text"].to_pylist())
    offsets = pa.array(matrix.indptr.astype(np.int32))
    for name, values in (("indices", matrix.indices.astype(np.int32)), ("values", matrix.data.astype(np.float32))):
        table = table.append_column(name, pa.ListArray.from_arrays(offsets, pa.array(values)))
    pq.write_table(table.drop_columns(["text"]), out)


if __name__ == "__main__":
    peer, source, out, terms, *options = sys.argv[1:]
    if peer == "spark-ml":
        spark_ml(source, out, int(terms), "hashed" in options, "cached" in options)
    else:
        scikit_learn(source, out, int(terms), "characters" in options)
