"""The schemas at the boundaries between jobs, and the check that data has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from jobs.corpus import Corpus

INDICES = StructField("indices", ArrayType(IntegerType(), False), False)
VALUES = StructField("values", ArrayType(FloatType(), False), False)
CONTENT = StructField("content", BinaryType(), False)
SPLIT = StructField("split", StringType(), False)


def features_schema(corpus: Corpus, without: StructField | None = None) -> StructType:
    """FEATURES: id, [label string or labels array<string>], indices, values, content, [split], the other columns.

    without: a column that folders' names tell, of which Spark reads the type there.
    """
    labels = {"label": StringType(), "labels": ArrayType(StringType())}
    fields = [StructField("id", LongType() if isinstance(corpus.id_type, LongType) else StringType(), False)]
    fields += [StructField(corpus.label, labels[corpus.label])] if corpus.label else []
    fields += [INDICES, VALUES, CONTENT, *([SPLIT] if corpus.split else [])]
    return StructType([*fields, *(field for field in corpus.carried if field != without)])


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
