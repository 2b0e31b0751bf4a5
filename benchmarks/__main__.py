"""`python -m benchmarks`: run everything, check the answers, write docs/benchmarks.md."""

from __future__ import annotations

import sys

from benchmarks import planner, quality, speed
from benchmarks.measure import PAGE, provenance

SECTIONS = {
    "fig7": quality.fig7,
    "fig2": quality.fig2,
    "kernels": speed.kernels,
    "algorithms": speed.algorithms,
    **planner.SECTIONS,
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        sys.exit(f"no benchmark is called {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    texts = []
    for name in names or SECTIONS:
        print(f"running {name} ...", file=sys.stderr)
        texts.append(SECTIONS[name]().markdown())
        print(texts[-1])
    if not names:  # only a whole run makes a page: every table then belongs to one commit
        head = f"# Benchmarks\n\nWritten by `make bench`. {provenance()}\n"
        PAGE.write_text("\n".join([head, *texts]), encoding="utf-8")
        print(f"written: {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
