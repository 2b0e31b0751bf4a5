from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.export import export_files, guard_spreadsheets
from distributary.export.tables import csv_bytes
from tests.cli.conftest import CommandLine
from tests.export.cases import csv_rows, hostile_plan

FORMULAS = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "＝1",
    "＋1",
    "－1",
    "＠A",
    "'=1",
)
NAMES = st.one_of(
    st.sampled_from(FORMULAS),
    st.builds(str.__add__, st.sampled_from([name[0] for name in FORMULAS]), st.text(max_size=5)),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)


def cells(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


@given(names=st.lists(NAMES, min_size=1))
def test_no_cell_begins_like_a_formula_and_every_name_can_be_told(names: list[str]) -> None:
    plain = csv_bytes({"flow": pa.array(names), "port": pa.array([40_000] * len(names))})
    header, *rows = cells(guard_spreadsheets({"flows.csv": plain})["flows.csv"])
    assert header == ["flow", "port"]
    assert [row[1] for row in rows] == ["40000"] * len(names)
    assert all(row[0].startswith("'") for row, name in zip(rows, names, strict=True)
               if name.startswith(tuple(name[0] for name in FORMULAS)))  # fmt: skip
    assert not any(row[0].startswith(tuple(f[0] for f in FORMULAS[:-1])) for row in rows)
    assert [row[0].removeprefix("'") for row in rows] == names


@pytest.mark.parametrize("name", ["csv", "cyclonedds", "nats"])
def test_only_csv_files_are_guarded_and_only_cells_that_need_it(name: str) -> None:
    plain = export_files(hostile_plan(), name)
    guarded = guard_spreadsheets(plain)
    assert set(guarded) == set(plain)
    for file, content in plain.items():
        if file.endswith(".csv"):
            assert guarded[file] != content
            assert [row.keys() for row in csv_rows(guarded[file])] == [
                row.keys() for row in csv_rows(content)
            ]
        else:
            assert guarded[file] == content


def test_export_guards_when_asked_to_and_says_so(cli: CommandLine) -> None:
    cli.write("interest.csv", "receiver,flow\n=cmd|x,@SUM(A1)\nbob,b\n")
    cli.write("rates.csv", "flow,rate\n@SUM(A1),1\nb,2\n")
    files = ("--interest", "interest.csv", "--rates", "rates.csv")
    assert cli("plan", *files, "--groups", "2", "--budget", "0.01s", "--out", "plan").status == 0
    export = ("export", "plan", "--format")
    assert cli(*export, "csv", "--out", "plain").status == 0
    assert cli(*export, "csv", "--out", "guarded", "--guard-spreadsheets").status == 0
    plain, guarded = (
        sorted(row["flow"] for row in csv_rows((cli.folder / at / "flows.csv").read_bytes()))
        for at in ("plain", "guarded")
    )
    assert (plain, guarded) == (["@SUM(A1)", "b"], ["'@SUM(A1)", "b"])
    manifest = json.loads((cli.folder / "guarded/export.json").read_text())
    assert manifest["guarded_spreadsheets"] is True
    refused = cli(*export, "aeron", "--out", "aeron", "--guard-spreadsheets")
    assert refused.status == 2
    assert not (cli.folder / "aeron").exists()
