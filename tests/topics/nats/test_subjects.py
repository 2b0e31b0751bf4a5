"""Any text as a subject of NATS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.nats.subjects import name_of, token_of
from distributary.topics.names import LONGEST_TOPIC, check_topic
from distributary.topics.nats import TopicNameError
from distributary.topics.nats.subjects import Subjects

NAMES = st.text(st.characters(codec="utf-8"), min_size=1)


@given(NAMES)
def test_a_token_has_nothing_that_a_server_reads_otherwise(name: str) -> None:
    token = token_of(name)
    assert token
    assert token.isascii()
    assert token.isprintable()
    assert not set(token) & set(". *>\t\r\n")
    assert name_of(token) == name


@given(NAMES, NAMES)
def test_two_names_never_share_a_subject(one: str, other: str) -> None:
    subjects = Subjects("a.b")
    assert (subjects.on(one) == subjects.on(other)) == (one == other)
    assert subjects.channel(subjects.to(one)) == one
    assert len({subjects.on(one), subjects.to(one), subjects.client(one)}) == 3


@pytest.mark.parametrize("token", ["", "%", "%zz", "%2e", "%41", "%ff", "a.b", "ü"])
def test_what_stands_for_no_name_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match=r"is not an encoded name|decode"):
        name_of(token)


@pytest.mark.parametrize(
    ("topic", "why"),
    [("", "empty"), ("\ud800", "Unicode"), ("ü" * LONGEST_TOPIC, "512 bytes")],
)
def test_some_names_no_topic_can_have(topic: str, why: str) -> None:
    with pytest.raises(TopicNameError, match=why) as caught:
        check_topic(topic)
    assert caught.value.name == topic


@pytest.mark.parametrize("topic", [" ", ".", "*", ">", "a b\n", "\x00", "日本", "🐟" * 64])
def test_others_are_fine(topic: str) -> None:
    check_topic(topic)


@pytest.mark.parametrize("prefix", ["", ".", "a..b", "a b", "*", ">", "ü"])
def test_a_prefix_is_tokens_with_dots_between(prefix: str) -> None:
    with pytest.raises(ValueError, match="is not a valid prefix"):
        Subjects(prefix)
