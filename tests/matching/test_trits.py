"""Trits: the paper's tables and worked examples."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.matching.trits import Trits, as_mask, as_words

VECTORS = st.integers(0, 70).flatmap(
    lambda size: st.tuples(*[st.text("YMN", min_size=size, max_size=size)] * 2)
)
# The tables on the slide "PST Annotation (3)".
ALTERNATIVE = {"YY": "Y", "YM": "M", "YN": "M", "MM": "M", "MN": "M", "NN": "N"}
PARALLEL = {"YY": "Y", "YM": "Y", "YN": "Y", "MM": "M", "MN": "M", "NN": "N"}
REFINED = {"Y": "YYY", "M": "YMN", "N": "NNN"}


def in_table(table: dict[str, str], a: str, b: str) -> str:
    return table.get(a + b) or table[b + a]


@pytest.mark.parametrize(("a", "b"), list(product("YMN", repeat=2)))
def test_the_whole_combine_tables(a: str, b: str) -> None:
    one, other = Trits.parse(a), Trits.parse(b)
    assert str(one.alternative(other)) == in_table(ALTERNATIVE, a, b)
    assert str(one.parallel(other)) == in_table(PARALLEL, a, b)
    assert str(one.refine(other)) == REFINED[a]["YMN".index(b)]


def test_the_worked_examples_of_the_paper() -> None:
    first, second, star = Trits.parse("MYY"), Trits.parse("NYN"), Trits.parse("YYN")
    assert str(first.alternative(second)) == "MYM"
    assert str(first.alternative(second).parallel(star)) == "YYM"
    assert str(Trits.parse("NMM").refine(Trits.parse("YYM"))) == "NYM"


@given(VECTORS)
def test_vectors_combine_link_by_link(pair: tuple[str, str]) -> None:
    one, other = Trits.parse(pair[0]), Trits.parse(pair[1])
    assert str(one) == pair[0]
    links = list(zip(*pair, strict=True))
    assert str(one.alternative(other)) == "".join(in_table(ALTERNATIVE, *link) for link in links)
    assert str(one.parallel(other)) == "".join(in_table(PARALLEL, *link) for link in links)


@given(st.integers(0, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, 2**n - 1))))
def test_words_hold_any_number_of_links(given: tuple[int, int]) -> None:
    n_links, mask = given
    words = as_words(mask, n_links)
    assert len(words) == max(1, -(-n_links // 64))
    assert as_mask(words) == mask


def test_other_letters_and_links_are_refused() -> None:
    with pytest.raises(ValueError, match="letters other than"):
        Trits.parse("YMX")
    with pytest.raises(ValueError, match="both yes and maybe"):
        Trits(2, yes=1, maybe=1)
    with pytest.raises(ValueError, match="beyond the 2 links"):
        Trits(2, yes=4)
