"""The text functions in Spark SQL: register(spark), in a classic session or one of Connect."""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from udfs.functions import FUNCTIONS, compile_kernels
from udfs.text import TextConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]  # a zip, if this was imported from one
SHIPPED = (".py", ".npz", ".nbi", ".nbc")  # source, tables and compiled kernels


def register(spark: SparkSession, config: TextConfig = TextConfig(), pandas: bool | None = None) -> None:
    """Give a session the SQL functions of `udfs.functions`; their code goes to the executors with the session's jobs.

    The executors need the packages of requirements.in, but not Textmill. pandas: whether Spark calls the functions with
    series rather than with Arrow arrays, which it can from 4.1 on; by default only where it must. Compiles the kernels
    where that was not done before, for a minute.
    """
    import pyspark.sql.functions as of_spark

    if pandas is None:
        pandas = not hasattr(of_spark, "arrow_udf")
    make: Any = getattr(of_spark, "pandas_udf" if pandas else "arrow_udf")
    compile_kernels(config)
    code = ship(spark)
    for name, function in FUNCTIONS.items():
        called = on_workers(code, name, asdict(config))
        called.__name__, called.__doc__ = name, f"{function.signature}\n\n{function.description}"
        spark.udf.register(name, make(called, function.returns))


def ship(spark: SparkSession) -> str:
    """Have Spark unpack the code for all workers; returns the name of the folder, which holds a hash of the code."""
    file = archive()
    if hasattr(spark, "sparkContext"):
        spark.sparkContext.addArchive(str(file))
    else:  # of Connect
        spark.addArtifact(str(file), archive=True)
    return file.name


@cache
def archive() -> Path:
    """A zip of this folder, or the one it was imported from, under a name of its own; gone when the process ends."""
    content = ROOT.read_bytes() if ROOT.is_file() else packed()
    folder = tempfile.TemporaryDirectory(prefix="textmill-")
    _folders.append(folder)
    file = Path(folder.name) / f"textmill-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    file.write_bytes(content)
    return file


_folders: list[tempfile.TemporaryDirectory[str]] = []  # Spark hands files to executors that come later, too


def packed() -> bytes:
    """A zip of this folder, the same for the same files: Connect takes no other one under a name that it knows."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(path for path in (ROOT / "udfs").rglob("*") if path.suffix in SHIPPED):
            file.writestr(zipfile.ZipInfo(path.relative_to(ROOT).as_posix()), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target.getvalue()


def on_workers(code: str, name: str, settings: dict[str, Any]) -> Callable[..., Any]:
    """The function as workers call it, with columns as Arrow arrays or as series.

    It is pickled by value: all that it needs of Textmill it imports there.
    """

    def call(*columns):  # type: ignore[no-untyped-def]  # Spark would take hints for those of one kind of function
        import importlib
        import os
        import sys

        import pyarrow as pa
        from pyspark import SparkFiles

        folder = os.path.join(SparkFiles.getRootDirectory(), code)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        function = importlib.import_module("udfs.functions").FUNCTIONS[name]
        config = importlib.import_module("udfs.text").TextConfig(**settings)
        arrays = [column if isinstance(column, pa.Array) else pa.Array.from_pandas(column) for column in columns]
        result = function(config, *arrays)
        return result if arrays[0] is columns[0] else result.to_pandas()

    return call
