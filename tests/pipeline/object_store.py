"""An object store for tests: the scheme `objects:`, over local files (`java/ObjectStore.java`).

Spark's own Java compiler compiles it, so that a Java without one is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

__all__ = ["ObjectStore", "class_files", "start_store"]

SOURCE = Path(__file__).parent / "java" / "ObjectStore.java"
CLASS = "distributary.tests.ObjectStore"
_ENDLESS = 2**62


class ObjectStore:
    """The store, as tests see it: which changes it made, and when it fails."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        loader = _compile(self._jvm).getClassLoader()
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        before = conf.getClassLoader()
        conf.setClassLoader(loader)
        conf.set("fs.objects.impl", CLASS)
        # Tasks have a configuration of their own, and find the store among those that are open.
        self._jvm.org.apache.hadoop.fs.Path("objects:/").getFileSystem(conf)
        conf.setClassLoader(before)
        kind = self._jvm.java.lang.Class.forName(CLASS, True, loader)
        self._left, self._made = kind.getField("changesLeft"), kind.getField("changes")

    @property
    def changes(self) -> int:
        """The number of changes so far: files written, renamed or removed."""
        return int(self._made.get(None))

    @contextmanager
    def kill_after(self, changes: int) -> Iterator[None]:
        """Let the store fail after so many changes, for good: nobody can clean up either."""
        self._left.setLong(None, changes)
        try:
            yield
        finally:
            self._left.setLong(None, _ENDLESS)


def start_store(spark: SparkSession) -> ObjectStore:
    """Compile the store and register it with a session."""
    return ObjectStore(spark)


def class_files(spark: SparkSession, folder: Path) -> Path:
    """Write the store's classes to a folder, for the class path of another process."""
    for name, code in dict(_compile(spark.sparkContext._jvm).getBytecodes()).items():
        file = folder / (name.replace(".", "/") + ".class")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(code))
    return folder


def _compile(jvm: Any) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(SOURCE.read_text(encoding="utf-8"))
    return compiler
