"""The rooms, and who may know whom."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import distributary

SOURCE = Path(distributary.__file__).parent

# A room may know the rooms of the rows above its own, and the errors; never its own row or below.
LAYERS = (
    ("model",),
    ("cost", "matching"),
    ("machines", "planning"),
    ("files", "workloads"),
    ("content", "delivery", "topics"),
    ("control", "pipeline"),
    ("dashboard", "export", "papers", "report"),
    ("system",),
    ("cli",),
)
ROOMS = [room for layer in LAYERS for room in layer]
MODULES = sorted(
    f"distributary.{path.relative_to(SOURCE).with_suffix('').as_posix().replace('/', '.')}"
    for path in SOURCE.rglob("*.py")
    if path.name != "__init__.py"
)


def rooms_imported_by(path: Path) -> set[str]:
    """Names of the rooms that a module imports, anywhere in it."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            rooms |= set(names) if parts[0] == "distributary" else set()
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "distributary":
                    rooms |= set(parts[1:2])
    return rooms & set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_only_the_rooms_above_it(room: str) -> None:
    depth = next(depth for depth, layer in enumerate(LAYERS) if room in layer)
    allowed = {name for layer in LAYERS[:depth] for name in layer} | {room}
    for path in sorted((SOURCE / room).rglob("*.py")):
        assert rooms_imported_by(path) <= allowed, path


# Machines take events and the time and return actions; shells, in packages named by their
# transport, do the rest. One module takes over files that former versions wrote.
MACHINES = (
    *("content", "control", "delivery", "topics", "topics/overlay", "topics/peer"),
    "machines/virtual",
)
STORAGE = {"topics/journal.py"}
OUTSIDE = {
    *("asyncio", "concurrent", "multiprocessing", "queue", "selectors", "signal", "socket", "ssl"),
    *(
        "subprocess",
        "threading",
        "time",
        "urllib",
        "http",
        "os",
        "io",
        "pathlib",
        "shutil",
        "fcntl",
        "sqlite3",
    ),
    *("nats", "prometheus_client", "watchfiles"),
}


def modules_imported_by(path: Path) -> set[str]:
    """The first names of all modules that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
    return found


@pytest.mark.parametrize("room", MACHINES)
def test_machines_do_no_input_or_output_and_read_no_clock(room: str) -> None:
    paths = [p for p in (SOURCE / room).glob("*.py") if f"{room}/{p.name}" not in STORAGE]
    assert paths
    for path in paths:
        assert not modules_imported_by(path) & OUTSIDE, path


def test_every_folder_is_a_room_with_a_place_in_the_order() -> None:
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders == set(ROOMS)


def test_importing_distributary_needs_no_optional_part() -> None:
    heavy = (
        "pyspark",
        "nats",
        "starlette",
        "uvicorn",
        "plotly",
        "matplotlib",
        "typer",
        "sklearn",
        "numba",
    )
    code = f"import sys, distributary; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("room", [f"distributary.{room}" for room in ROOMS])
def test_a_room_exports_exactly_what_it_lists(room: str) -> None:
    module = importlib.import_module(room)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    assert imported_names(tree.body) == set(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


def imported_names(body: list[ast.stmt]) -> set[str]:
    return {
        alias.asname or alias.name
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module != "distributary.extras"
        for alias in node.names
    }


def test_the_front_door_loads_what_it_lists_from_where_type_checkers_find_it() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    listed = set(distributary.__all__) - {"__version__"}
    assert imported_names(checked.body) == listed
    for node in checked.body:
        assert isinstance(node, ast.ImportFrom)
        room = importlib.import_module(str(node.module))
        for alias in node.names:
            assert getattr(distributary, alias.name) is getattr(room, alias.name)
    assert listed <= set(dir(distributary))
    with pytest.raises(AttributeError, match="nosuch"):
        _ = distributary.nosuch


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_lists_exists(name: str) -> None:
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public), public
