from __future__ import annotations

from pathlib import Path

from distributary.machines.real.log_lines import LogLine
from distributary.system.part_log import PartLog


def test_lines_have_their_time(tmp_path: Path) -> None:
    moments = iter([0.0, 61.5])
    log = PartLog(tmp_path / "a.log", lambda: next(moments), print)
    document = LogLine("info", "serving").as_json(7.0)
    for line in ("one", document, "two"):
        log.write(line)
    assert log.path.read_text().splitlines() == [
        "1970-01-01T00:00:00.000+00:00 one",
        document,
        "1970-01-01T00:01:01.500+00:00 two",
    ]


def test_a_file_that_is_full_becomes_the_former_one(tmp_path: Path) -> None:
    log = PartLog(tmp_path / "a.log", lambda: 0.0, print, most_bytes=400)
    for number in range(100):
        log.write(f"line {number}")
    former = (tmp_path / "a.log.1").read_text().splitlines()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1"]
    present = log.path.read_text().splitlines()
    numbers = [int(line.rpartition(" ")[2]) for line in [*former, *present]]
    assert numbers == list(range(numbers[0], 100))
    assert len("\n".join(former)) < 450


def test_a_folder_that_is_gone_is_told_once_and_stops_nobody(tmp_path: Path) -> None:
    told: list[str] = []
    log = PartLog(tmp_path / "logs" / "a.log", lambda: 0.0, told.append)
    log.write("one")
    log.write("two")
    assert len(told) == 1
    assert "cannot be written (no such file or directory)" in told[0]
    (tmp_path / "logs").mkdir()
    log.write("three")
    assert log.path.read_text().endswith(" three\n")


def test_the_last_words_are_those_about_an_error_if_there_are_any(tmp_path: Path) -> None:
    log = PartLog(tmp_path / "a.log", lambda: 0.0, print)
    assert log.last_words == ""
    log.write("starting")
    assert log.last_words == "starting"
    log.write("error: no room; make some")
    log.write("bye")
    assert log.last_words == "no room; make some"
    log.begin()
    assert log.last_words == ""
