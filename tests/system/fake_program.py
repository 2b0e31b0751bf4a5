"""Stands in for `distributary` where only the supervision of its processes is under test.

Each process appends to `diary` in the folder that it is given when it starts and ends. A file
`NAME.does` there says that a process does something else: `fail` at once, `mute` (never say that it
works), `stay` (ignore SIGTERM).
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path


def main(words: list[str]) -> None:
    role = words[0]
    name = words[words.index("--as") + 1] if "--as" in words else role
    state = words[words.index("--state" if role == "control" else "--control") + 1]
    folder = Path(state).parent
    behaviour = folder / f"{name}.does"
    does = behaviour.read_text() if behaviour.exists() else ""

    def note(what: str) -> None:
        with (folder / "diary").open("a") as diary:
            diary.write(f"{name} {what} {os.getpid()}\n")

    def end(number: int, frame: object) -> None:
        note("ended")
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if does == "stay" else end)
    note("started")
    if does == "fail":
        print("some line before")
        print(f"error: {name} does not like it here; go elsewhere", file=sys.stderr)
        sys.exit(1)
    if does != "mute":
        say_that_it_works(role, words)
    if role in ("receive", "publish"):
        flows = [words[at + 1] for at, word in enumerate(words) if word == "--flow"]
        follow_lines(folder / f"{name}.lines", flows)
    threading.Event().wait()


def say_that_it_works(role: str, words: list[str]) -> None:
    if role == "control":
        line = {"time": "2026-01-01", "level": "info", "what": "serving", "says": "as a fake"}
        print(json.dumps(line), file=sys.stderr, flush=True)
    elif role == "dashboard":
        port = words[words.index("--port") + 1]
        print(f"pages at http://127.0.0.1:{port}/", flush=True)
    else:
        print("metrics at http://127.0.0.1:1/metrics", file=sys.stderr, flush=True)


def follow_lines(path: Path, flows: list[str]) -> None:
    """Copy what comes on stdin, after the flows of the command line."""
    begun = path.with_suffix(".begun")
    begun.write_text((path.read_text() if path.exists() else "") + json.dumps(flows) + "\n")
    begun.rename(path)
    with path.open("a", buffering=1) as file:
        for line in sys.stdin:
            file.write(line)


main(sys.argv[1:])
