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
    ("planning", "protocol"),
    ("files", "simulation", "workloads"),
    ("live", "pipeline"),
    ("export", "papers", "report"),
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


def test_every_folder_is_a_room_with_a_place_in_the_order() -> None:
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders == set(ROOMS)


def test_importing_distributary_needs_no_optional_part() -> None:
    heavy = ("pyspark", "nats", "starlette", "uvicorn", "plotly", "matplotlib", "typer", "sklearn")
    code = f"import sys, distributary; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("room", ["distributary.api", *(f"distributary.{room}" for room in ROOMS)])
def test_a_room_exports_exactly_what_it_lists(room: str) -> None:
    module = importlib.import_module(room)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


def test_distributary_offers_what_its_api_lists_and_nothing_is_loaded_before_it_is_asked_for() -> (
    None
):
    code = (
        "import sys, distributary as dy; early = 'numpy' in sys.modules; "
        "from distributary import *; import distributary.api as api; "
        "assert all(globals()[name] is getattr(api, name) for name in api.__all__); "
        "assert set(api.__all__) <= set(dir(dy)); "
        "assert dy.planning.plan is dy.plan and not hasattr(dy, 'nothing'); print(early)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_lists_exists(name: str) -> None:
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public), public
