"""The index of figures, read back from their pages."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distributary.cli import paper
from distributary.cli.paper import app
from distributary.errors import InputError, OutputError
from distributary.papers import Claim, Figure, write_figure, write_index
from distributary.papers.index import read_page
from distributary.papers.summary import PAPERS, describe_papers
from distributary.planning import Progress, Step
from tests.papers.cases import quick

RECORDED = Path(__file__).parents[2] / "docs/papers"
MISS = Claim("it falls", "section 9, Fig. 3(a)", "it rises by 3 %", holds=False)


def with_miss(name: str = "tock-fig4") -> Figure:
    return replace(quick(name), claims=(*quick(name).claims, MISS))


def test_a_page_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    figure = with_miss()
    write_figure(figure, tmp_path)
    page = read_page(tmp_path / "tock-fig4.md")
    assert (page.name, page.title, page.source) == (figure.name, figure.title, figure.source)
    assert (page.command, page.claims) == (figure.command, figure.claims)
    assert page.verdict == f"Partly reproduced: {len(figure.claims) - 1} of 5 claims hold"


def test_the_index_names_every_page_its_command_and_every_miss(tmp_path: Path) -> None:
    figures = [quick("adler-fig2"), with_miss()]
    for figure in figures:
        write_figure(figure, tmp_path)
    text = write_index(tmp_path).read_text(encoding="utf-8")
    for figure in figures:
        assert f"[{figure.name}]({figure.name}.md)" in text
        assert f"`{figure.command} --out docs/papers`" in text
        assert all(claim.ours in text for claim in figure.claims if not claim.holds)
    assert "it falls (section 9, Fig. 3(a)). Ours: it rises by 3 %." in text
    assert "| Tock et al. (2005) | 5 | 4 |" in text


def test_a_single_run_brings_the_index_up_to_date(tmp_path: Path) -> None:
    write_figure(with_miss(), tmp_path)
    assert "it rises by 3 %" in write_index(tmp_path).read_text(encoding="utf-8")
    arguments = ["run", "tock-fig4", "--quick", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "it rises by 3 %" not in text
    assert "reproduced: 4 of 4 claims hold" in text


def test_running_all_figures_says_which_of_them_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps: list[Step] = []

    def run_figure(name: str, *, progress: Progress, **_: object) -> Figure:
        progress(Step("floors", 0, 5))
        return quick(name)

    monkeypatch.setattr(paper, "FIGURES", dict.fromkeys(("tock-fig4", "adler-fig2")))
    monkeypatch.setattr(paper, "run_figure", run_figure)
    monkeypatch.setattr(paper, "show_progress", lambda: nullcontext(steps.append))
    for name in ("all", "tock-fig4"):
        assert CliRunner().invoke(app, ["run", name, "--out", str(tmp_path)]).exit_code == 0
    assert [step.stage for step in steps] == [
        "tock-fig4, 1 of 2: floors",
        "adler-fig2, 2 of 2: floors",
        "floors",
    ]


def test_a_readme_that_is_no_index_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# My project\n")
    with pytest.raises(OutputError, match="is not an index of figures"):
        write_index(tmp_path)
    assert (tmp_path / "README.md").read_text() == "# My project\n"


def test_a_page_that_somebody_rewrote_is_named(tmp_path: Path) -> None:
    (tmp_path / "tock-fig4.md").write_text("# Notes\n\nOur own.\n")
    with pytest.raises(InputError, match=r"tock-fig4\.md: is not a figure's page"):
        write_index(tmp_path)


def test_the_page_in_a_hurry_quotes_the_figures(tmp_path: Path) -> None:
    figures = [quick("adler-fig2"), quick("tock-fig6")]
    for figure in figures:
        write_figure(figure, tmp_path)
    write_index(tmp_path)
    text = (tmp_path / "in-a-hurry.md").read_text(encoding="utf-8")
    quoted = next(c for c in quick("adler-fig2").claims if c.says.startswith("FBM within 5 %"))
    assert f"*{quoted.says}* (here {quoted.ours}; [adler-fig2](adler-fig2.md))" in text
    assert quick("adler-fig2").own in text
    assert f"of {len(quick('adler-fig2').claims)} claims hold" in text
    assert "## Tamara" not in text  # none of its figures is there


def test_the_page_in_a_hurry_says_in_one_sentence_what_holds_and_what_does_not() -> None:
    tock = next(brief for brief in PAPERS if brief.paper.startswith("Tock"))
    claims = {
        name: [Claim(f"{begins} much", "section 5", "46 %", holds=name == "tock-fig7")]
        for name, begins in tock.found
    }
    own = {name: f"Ours in {name}." for name in tock.ours}
    text = describe_papers(claims, own, {tock.paper: "1 of 2 claims hold"})
    (found,) = [line for line in text.splitlines() if line.startswith("- **We found.**")]
    assert found.startswith("- **We found.** 1 of 2 claims hold, among them *IT and RRA are")
    assert ", but not *at equal prices a second level saves much* (here 46 %; [tock-fig6]" in found
    assert all(f"Ours in {name}. ([{name}]({name}.md))" in text for name in tock.ours)


def test_what_the_page_in_a_hurry_quotes_stands_on_the_recorded_pages() -> None:
    for brief in PAPERS:
        for name, begins in brief.found:
            page = read_page(RECORDED / f"{name}.md")
            assert page.paper == brief.paper
            assert sum(claim.says.startswith(begins) for claim in page.claims) == 1
    own = [read_page(RECORDED / f"{name}.md").own for brief in PAPERS for name in brief.ours]
    assert all(own)
    assert not any(each.startswith(("|", "- ")) for each in own)  # a sentence, not a table's head


def test_the_recorded_index_fits_the_recorded_pages(tmp_path: Path) -> None:
    for page in RECORDED.glob("*.md"):
        shutil.copy(page, tmp_path)
    write_index(tmp_path)
    for name in ("README.md", "in-a-hurry.md"):
        recorded = (RECORDED / name).read_text(encoding="utf-8")
        assert (tmp_path / name).read_text(encoding="utf-8") == recorded
