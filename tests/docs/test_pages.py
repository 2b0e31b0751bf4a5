"""What the documentation shows can be found, and what it names exists."""

from __future__ import annotations

import csv
import json
import re
from typing import Any

import pytest

from tests.docs.pages import (
    APP,
    EXAMPLES,
    PAGES,
    PROGRAM,
    ROOT,
    SHELL,
    Block,
    Command,
    all_blocks,
    all_commands,
    blocks_of,
    code_spans,
    commands_of,
    walk,
)

TEXT = """\
Some text.

    distributary plan --interest interest.csv \\
        --out plan
    # a remark

    (umask 077; cat a > b)

- an item

    of two paragraphs

```
make demo    # sets itself up
```

```json
{"flow": "IBM"}
```
"""


def test_commands_are_found_in_fenced_and_in_indented_blocks() -> None:
    blocks = list(blocks_of(TEXT, "page.md"))
    assert [(block.line, block.language) for block in blocks] == [(3, ""), (14, ""), (18, "json")]
    found = [command for block in blocks[:2] for command in commands_of(block)]
    assert [command.text for command in found] == [
        "distributary plan --interest interest.csv --out plan",
        "(umask 077; cat a > b)",
        "make demo    # sets itself up",
    ]
    assert [command.line for command in found] == [3, 7, 14]


def test_a_command_knows_what_it_reads_and_what_it_writes() -> None:
    command = Command("distributary pipeline replay run/plan --out a --json", "page.md", 1, 1)
    assert command.name == "pipeline replay"
    assert command.outputs == ("a",)
    assert command.inputs == ("run/plan", "--out", "--json")
    shell = Command("(umask 077; cat 'x > y' > key)", "page.md", 1, 1)
    assert not shell.is_ours
    assert shell.outputs == ("key",)


def test_a_command_that_goes_on_after_its_block_is_refused() -> None:
    with pytest.raises(ValueError, match="goes on after its block"):
        list(commands_of(Block("page.md", 1, "", ("distributary plan \\",))))


def test_every_page_with_commands_is_read() -> None:
    pages = {command.page for command in all_commands()}
    assert {"README.md", "examples/README.md", "docs/delivery.md", "docs/pipeline.md"} <= pages


def test_no_command_hides_in_a_block_of_another_language() -> None:
    start = re.compile(rf"\s*(\$ |\S*{PROGRAM}\s|make\s|spark-submit\s|python\s)")
    hidden = [
        f"{block.page}:{block.line}: {line}"
        for block in all_blocks()
        if block.language not in SHELL
        for line in block.lines
        if start.match(line)
    ]
    assert hidden == []


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def all_options(command: Any) -> set[str]:
    """The options of a command and of all below it."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    return options_of(command).union({"--help"}, *map(all_options, inner.values()))


SPANS = [
    (path.relative_to(ROOT).as_posix(), span)
    for path in PAGES
    for span in code_spans(path.read_text(encoding="utf-8"))
]


def test_commands_in_the_text_and_their_options_exist() -> None:
    for page, span in SPANS:
        words = tuple(span.split())
        if words[0] == PROGRAM and len(words) > 1:
            led = walk(words[1:])
            assert led, f"{page}: there is no such command: {span}"
            assert not getattr(led[-1], "commands", {}) or len(words) == 1 + len(led), span
            wrong = {word for word in words if word.startswith("--")} - options_of(led[-1])
            assert wrong <= {"--help"}, f"{page}: {span}"


def test_options_in_the_text_exist() -> None:
    known = all_options(APP)
    for page, span in SPANS:
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span):
            assert option in known, f"{page}: no command has {option}"


def test_the_line_that_a_subscriber_prints_is_of_an_event_of_the_examples() -> None:
    (line,) = (
        json.loads(each.lines[0])
        for each in all_blocks()
        if each.page.endswith("content-routing.md") and each.language == "json"
    )
    rows = csv.DictReader((EXAMPLES / "events.csv").read_text().splitlines())
    schema = json.loads((EXAMPLES / "schema.json").read_text())
    assert [*line["event"]] == [*schema]
    shown = {name: str(value) for name, value in line["event"].items() if name != "ts"}
    assert shown in [{name: row[name] for name in shown} for row in rows]


def test_the_names_of_a_control_plane_are_those_of_the_examples() -> None:
    (block,) = (
        each for each in all_blocks() if each.page.endswith("system.md") and each.language == "json"
    )
    assert "\n".join(block.lines) == (EXAMPLES / "names.json").read_text().rstrip()


def test_examples_are_small_and_each_is_explained_and_used() -> None:
    files = [path for path in EXAMPLES.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 200_000
    explained = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    used = {word.rstrip("/") for command in all_commands() for word in command.inputs}
    for path in EXAMPLES.iterdir():
        if path.name != "README.md":
            name = f"{path.name}/" if path.is_dir() else path.name
            assert f"`{name}`" in explained, name
            assert path.name in used, f"no command uses {name}"
