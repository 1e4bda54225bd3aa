"""Who trains on the same features beside train.py: train_peers.py native|spark-xgb|start|vectors SETTINGS.

SETTINGS: JSON of features (a folder of featurize --split), width, rounds, depth, eta, max_bin, out, sparse.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def native(given: dict[str, Any]) -> None:
    """XGBoost in one process: read the rows by pyarrow, bin, train, save."""
    import numpy as np
    import pyarrow.dataset as ds
    import xgboost
    from scipy.sparse import csr_matrix

    rows = ds.dataset(given["features"], format="parquet", exclude_invalid_files=True)
    train = rows.to_table(["label", "indices", "values"], filter=ds.field("split") == "train").combine_chunks()
    indices, values = train["indices"].combine_chunks(), train["values"].combine_chunks()
    parts = (values.flatten().to_numpy(), indices.flatten().to_numpy(), indices.offsets.to_numpy())
    matrix = csr_matrix(parts, shape=(len(train), given["width"]))
    labels = np.array([name == "yes" for name in train["label"].to_pylist()], np.float32)
    params = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": given["depth"], "nthread": 2}
    params |= {"eta": given["eta"], "max_bin": given["max_bin"]}
    binned = xgboost.QuantileDMatrix(matrix, labels, missing=0.0, max_bin=given["max_bin"], nthread=2)
    xgboost.train(params, binned, given["rounds"]).save_model(given["out"])


def spark_xgb(given: dict[str, Any]) -> None:
    """SparkXGBClassifier on vectors in Parquet, one worker with two threads; sparse: its best setting for them."""
    from pyspark.sql import SparkSession
    from xgboost.spark import SparkXGBClassifier

    spark = SparkSession.builder.appName("spark-xgb").getOrCreate()
    rows = spark.read.parquet(given["vectors"])
    more = {"enable_sparse_data_optim": True, "missing": 0.0} if given["sparse"] else {}
    classifier = SparkXGBClassifier(
        n_estimators=given["rounds"], max_depth=given["depth"], learning_rate=given["eta"], max_bin=given["max_bin"],
        tree_method="hist", num_workers=1, **more,
    )  # fmt: skip
    classifier.fit(rows).get_booster().save_model(given["out"])
    spark.stop()


def start(given: dict[str, Any]) -> None:
    """What Spark costs that only starts, and reads and counts the rows by one Python worker."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("start").getOrCreate()
    rows = spark.read.parquet(given["features"]).select("id")
    counted = rows.mapInArrow(lambda batches: batches, "id string").count()
    Path(given["out"]).write_text(str(counted))
    spark.stop()


def vectors(given: dict[str, Any]) -> None:
    """The training rows as Spark ML's sparse vectors, which is not measured."""
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.builder.appName("vectors").getOrCreate()
    width = given["width"]
    sparse = F.udf(lambda indices, values: Vectors.sparse(width, indices, values), VectorUDT())
    rows = spark.read.parquet(given["features"]).where("split = 'train'")
    label = F.when(F.col("label") == "yes", 1.0).otherwise(0.0).alias("label")
    rows.select(label, sparse("indices", "values").alias("features")).write.parquet(given["out"])
    spark.stop()


if __name__ == "__main__":
    {"native": native, "spark-xgb": spark_xgb, "start": start, "vectors": vectors}[sys.argv[1]](json.loads(sys.argv[2]))
