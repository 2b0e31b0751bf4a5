"""Output as tables of a catalog that Spark knows: each replaced as a whole, in one commit.

A prefix `db.floor` stands for the tables `db.floor_interest`, `db.floor_rates` and so on. Each has
one more column, `run`, with the id of the run that wrote it. How a table is replaced depends on its
catalog:

- Iceberg, Delta and others that stage a replacement: Spark writes the table and commits it once.
- Spark's own catalog (in memory or Hive): the rows go to a new folder beside those of the run
  before, and then one change of the catalog names the new folder as the table's location. Spark's
  own `overwrite` would drop the table first. So these tables are external: after `DROP TABLE` their
  files remain. The folder of the run before is kept for those who still read it; what killed runs
  left is removed as by `versions`.
- Others: the catalog's own `overwrite`, with the guarantees that it gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.errors import OutputError
from distributary.files.faults import summarize_error
from distributary.files.versions import is_version
from distributary.pipeline.schemas import RATES, quote_name
from distributary.pipeline.spark import spark_message
from distributary.pipeline.stores import StorePath, remove_folder
from distributary.pipeline.undisturbed import stay_undisturbed
from distributary.pipeline.versions import is_abandoned

__all__ = ["REPLAY_TABLES", "RUN_TABLES", "CatalogTables", "complete_rates"]

REPLAY_TABLES: Final = ("replay_minutes", "replay_receivers")
RUN_TABLES: Final = (
    *("interest", "rates", "placements", "sessions", "subscriptions", "unicast"),
    *REPLAY_TABLES,
)
RUN, PREVIOUS = "distributary.run", "distributary.previous"
_SESSION_CATALOG = "spark_catalog"
_STAGING = "org.apache.spark.sql.connector.catalog.StagingTableCatalog"


class CatalogTables:
    """The tables of one prefix: checked when created, before any work is done, then written."""

    def __init__(self, spark: SparkSession, prefix: str, names: tuple[str, ...]) -> None:
        self._spark = spark
        self._prefix = prefix
        self._catalog, self._namespace, self._stem = _parse_prefix(spark, prefix)
        self._in_session_catalog, self._stages = self._inspect_catalog()
        self._check_database()
        for name in names:
            self._check_ours(name)

    def write(self, tables: Mapping[str, DataFrame], run: str) -> None:
        """Replace each table by these rows, with the run's id in each."""
        done: list[str] = []
        for name, frame in tables.items():
            rows = frame.withColumn("run", F.lit(run))
            try:
                self._replace(name, rows, run)
            except (PySparkException, Py4JError) as error:
                raise self._write_fault(name, spark_message(error), done) from error
            except OSError as error:
                raise self._write_fault(name, summarize_error(error), done) from error
            done.append(self._plain_name(name))

    def _write_fault(self, name: str, reason: str, done: list[str]) -> OutputError:
        replaced = f"{', '.join(done)} have the rows of this run" if done else "no table changed"
        return OutputError(
            f"cannot be written: {reason}",
            path=self._plain_name(name),
            remedy=f"check the catalog and run again; {replaced}",
        )

    def _replace(self, name: str, rows: DataFrame, run: str) -> None:
        table = self._full_name(name)
        if self._in_session_catalog:
            self._move_location(name, rows, run)
        elif self._stages:
            rows.writeTo(table).tableProperty(RUN, run).createOrReplace()
        elif self._exists(name):
            rows.writeTo(table).overwrite(F.lit(True))
        else:
            rows.writeTo(table).tableProperty(RUN, run).create()

    def _move_location(self, name: str, rows: DataFrame, run: str) -> None:
        """Write a new folder and make it the table's location, in one change of the catalog."""
        home = StorePath(self._default_location(name), self._spark)
        new, exists = home / run, self._exists(name)
        if exists:
            self._check_columns(name, rows)
        try:
            rows.write.parquet(str(new))
            if exists:
                self._set_location(name, new)
            else:
                self._create_at(name, rows, new)
        except BaseException:
            stay_undisturbed()
            if not self._is_at(name, new):
                remove_folder(new)
            raise
        self._set_property(name, RUN, run)

    def _create_at(self, name: str, rows: DataFrame, new: StorePath) -> None:
        columns = ", ".join(
            f"{quote_name(field.name)} {field.dataType.simpleString()}" for field in rows.schema
        )
        self._spark.sql(
            f"CREATE TABLE {self._full_name(name)} ({columns}) USING parquet "
            f"LOCATION {_quote_text(str(new))} TBLPROPERTIES ('{RUN}' = '{new.name}')"
        )

    def _set_location(self, name: str, new: StorePath) -> None:
        """Change the location, keep the one before, and remove those that nobody can read."""
        spark, table = self._spark, self._full_name(name)
        now = self._location(name)
        before = self._properties(name).get(PREVIOUS)
        self._set_property(name, PREVIOUS, now.name)
        spark.sql(f"ALTER TABLE {table} SET LOCATION {_quote_text(str(new))}")
        spark.catalog.refreshTable(table)
        for folder in new.parent.glob("*"):
            if not is_version(folder.name) or folder.name in (new.name, now.name):
                continue
            if folder.name == before or is_abandoned(folder):
                remove_folder(folder)

    def _check_columns(self, name: str, rows: DataFrame) -> None:
        """Refuse rows that the table has no room for: Spark would drop columns in silence."""
        have = [
            (field.name, field.dataType)
            for field in self._spark.table(self._full_name(name)).schema
        ]
        if have != [(field.name, field.dataType) for field in rows.schema]:
            raise OutputError(
                f"has the columns {', '.join(column for column, _ in have)}, "
                f"not {', '.join(rows.columns)} with their types",
                path=self._plain_name(name),
                remedy="drop the table, or name another prefix for --out-table",
            )

    # --- what is there ---------------------------------------------------------------------------

    def _full_name(self, name: str) -> str:
        return ".".join(
            quote_name(part) for part in (self._catalog, *self._namespace, f"{self._stem}_{name}")
        )

    def _exists(self, name: str) -> bool:
        return bool(self._spark.catalog.tableExists(self._full_name(name)))

    def _inspect_catalog(self) -> tuple[bool, bool]:
        """Whether it is the session's catalog, and whether it stages replacements."""
        jvm: Any = self._spark.sparkContext._jvm
        state = self._spark._jsparkSession.sessionState()
        try:
            catalog = state.catalogManager().catalog(self._catalog)
        except (PySparkException, Py4JError) as error:
            raise self._fault(f"cannot be used: {spark_message(error)}", "check --conf") from error
        staging = jvm.java.lang.Class.forName(_STAGING, False, catalog.getClass().getClassLoader())
        return self._catalog == _SESSION_CATALOG, bool(staging.isInstance(catalog))

    def _check_database(self) -> None:
        database = ".".join(quote_name(part) for part in (self._catalog, *self._namespace))
        if self._namespace and not self._spark.catalog.databaseExists(database):
            named = ".".join(self._namespace)
            remedy = f"create it (CREATE DATABASE {named}), or name another"
            raise self._fault(f"there is no database {named}", remedy)

    def _check_ours(self, name: str) -> None:
        """Refuse to replace a table or view that no run of distributary has written."""
        try:
            if not self._exists(name):
                return
            ours = RUN in self._properties(name)
            if not ours and not self._in_session_catalog:  # some catalogs keep no properties
                ours = self._spark.table(self._full_name(name)).columns[-1:] == ["run"]
        except AnalysisException:
            ours = False  # a view has no properties of a table
        if not ours:
            raise OutputError(
                "exists, and was not written by distributary",
                path=self._plain_name(name),
                remedy="name another prefix for --out-table, or drop it",
            )

    def _plain_name(self, name: str) -> str:
        return self._full_name(name).replace("`", "")

    def _location(self, name: str) -> StorePath:
        """The folder that the table reads now."""
        catalog = self._spark._jsparkSession.sessionState().catalog()
        found = catalog.getTableMetadata(self._identify(name)).location()
        return StorePath(str(found.toString()), self._spark)

    def _is_at(self, name: str, folder: StorePath) -> bool:
        """Whether the table reads this folder; true if in doubt, as nothing is removed then."""
        try:
            return self._exists(name) and self._location(name).name == folder.name
        except Exception:
            return True

    def _set_property(self, name: str, key: str, value: str) -> None:
        self._spark.sql(
            f"ALTER TABLE {self._full_name(name)} SET TBLPROPERTIES ('{key}' = '{value}')"
        )

    def _properties(self, name: str) -> dict[str, str]:
        found = self._spark.sql(f"SHOW TBLPROPERTIES {self._full_name(name)}").collect()
        return {row[0]: row[1] for row in found}

    def _default_location(self, name: str) -> str:
        """Where the catalog itself would put the table's files."""
        jvm: Any = self._spark.sparkContext._jvm
        catalog = self._spark._jsparkSession.sessionState().catalog()
        path = jvm.org.apache.hadoop.fs.Path(catalog.defaultTablePath(self._identify(name)))
        return str(path.toString())

    def _identify(self, name: str) -> Any:
        jvm: Any = self._spark.sparkContext._jvm
        option = jvm.scala.Option.apply
        return jvm.org.apache.spark.sql.catalyst.TableIdentifier(
            f"{self._stem}_{name}", option(self._namespace[0])
        )

    def _fault(self, reason: str, remedy: str) -> OutputError:
        return OutputError(reason, path=f"--out-table {self._prefix}", remedy=remedy)


def complete_rates(rates: DataFrame) -> DataFrame:
    """The rates with all columns that they can have: a table keeps its columns from run to run."""
    known = set(rates.columns)
    return rates.select(
        *(
            (F.col(field.name) if field.name in known else F.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in RATES
        )
    )


def _parse_prefix(spark: SparkSession, prefix: str) -> tuple[str, tuple[str, ...], str]:
    """The catalog, the database in it, and how the names of the tables begin."""
    state = spark._jsparkSession.sessionState()
    try:
        found = state.sqlParser().parseMultipartIdentifier(prefix)
    except (PySparkException, Py4JError) as error:
        raise OutputError(
            "is not the name of a table",
            path=f"--out-table {prefix}",
            remedy="name it as DB.NAME, with backquotes around parts with odd characters",
        ) from error
    parts = [str(found.apply(at)) for at in range(found.size())]
    manager = state.catalogManager()
    if len(parts) > 1 and manager.isCatalogRegistered(parts[0]):
        catalog, parts = parts[0], parts[1:]
    else:
        catalog = str(manager.currentCatalog().name())
    if len(parts) == 1:
        parts = [*manager.currentNamespace(), *parts]
    return catalog, tuple(parts[:-1]), parts[-1]


def _quote_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
