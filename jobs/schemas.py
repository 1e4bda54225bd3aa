"""The schemas at the boundaries between jobs, and the check that data has them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, FloatType, IntegerType, LongType, StringType, StructField, StructType

INDICES = StructField("indices", ArrayType(IntegerType(), False), False)
VALUES = StructField("values", ArrayType(FloatType(), False), False)


def features_schema(id_type: DataType, label: str | None, carried: list[StructField]) -> StructType:
    """FEATURES: id, [label string or labels array<string>], indices, values, the other columns.

    id_type: string or bigint; label: "label", "labels" or None.
    """
    labels = {"label": StringType(), "labels": ArrayType(StringType())}
    fields = [StructField("id", LongType() if isinstance(id_type, LongType) else StringType(), False)]
    fields += [StructField(label, labels[label])] if label else []
    return StructType([*fields, INDICES, VALUES, *carried])


def tokens_schema(id_type: DataType) -> StructType:
    """TOKENS: id, sentence, position, token, begin_at, end_at."""
    numbers = {name: StructField(name, IntegerType()) for name in ("sentence", "position", "begin_at", "end_at")}
    token = StructField("token", StringType())
    columns = [numbers["sentence"], numbers["position"], token, numbers["begin_at"], numbers["end_at"]]
    return StructType([StructField("id", LongType() if isinstance(id_type, LongType) else StringType()), *columns])


def check(data: DataFrame, schema: StructType) -> None:
    """Raise ValueError unless the columns have the names and types of `schema`, in its order (nullability aside)."""
    found = [(field.name, field.dataType.simpleString()) for field in data.schema.fields]
    wanted = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    if found != wanted:
        raise ValueError(f"the columns are {found}, expected {wanted}")
