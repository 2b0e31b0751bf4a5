"""Sessions, tokens, host names and attempts: values and machines without I/O."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.dashboard.guard import SESSION_S, Attempts, HostRule, Sessions, is_token


def test_a_session_is_found_by_its_cookie_until_it_is_too_old():
    sessions = Sessions()
    operator, cookie = sessions.begin("ann", 1_000.0)
    assert sessions.find(cookie, 1_000.0 + SESSION_S - 1) == operator
    assert sessions.find(cookie, 1_000.0 + SESSION_S) is None


def test_a_restart_ends_all_sessions():
    _, cookie = Sessions().begin("ann", 0.0)
    assert Sessions().find(cookie, 1.0) is None


def test_a_session_that_was_ended_is_none_and_others_go_on():
    sessions = Sessions()
    ann, cookie = sessions.begin("ann", 0.0)
    _, other = sessions.begin("ann", 0.0)
    sessions.end(ann)
    assert sessions.find(cookie, 1.0) is None
    assert sessions.find(other, 1.0) is not None


def test_a_token_against_forged_requests_is_of_one_session():
    sessions = Sessions()
    ann, _ = sessions.begin("ann", 0.0)
    bob, _ = sessions.begin("bob", 0.0)
    token = sessions.make_csrf_token(ann)
    assert sessions.check_csrf_token(ann, token)
    assert not sessions.check_csrf_token(bob, token)
    assert not sessions.check_csrf_token(ann, "")


@given(st.text())
def test_no_text_is_a_session(text: str):
    assert Sessions().find(text, 0.0) is None


@given(st.data())
def test_no_change_of_a_cookie_is_a_session_of_another_name(data: st.DataObject):
    sessions = Sessions()
    operator, cookie = sessions.begin("ann", 0.0)
    at = data.draw(st.integers(0, len(cookie) - 1))
    sign = data.draw(st.sampled_from(string.printable))
    changed = cookie[:at] + sign + cookie[at + 1 :]
    assert sessions.find(changed, 1.0) in (None, operator)


def test_no_token_is_never_shown_by_an_empty_one():
    assert not is_token("", "")
    assert not is_token("x", "")
    assert is_token("ü" * 16, "ü" * 16)
    assert not is_token("\ud800", "ü" * 16)


@given(st.from_regex(r"[a-z][a-z0-9.-]{0,30}(:[0-9]{1,5})?", fullmatch=True))
def test_no_name_that_was_not_given_is_a_name_of_the_server(name: str):
    bare = name.partition(":")[0].rstrip(".")
    assert HostRule(("127.0.0.1",)).allows(name) == (bare == "localhost")


@pytest.mark.parametrize("host", ["[::1", "[::1]evil.example", "[]", "1", "0x7f.1", "::1:80"])
def test_what_only_looks_like_an_address_is_none(host: str):
    assert not HostRule(()).allows(host)


def test_an_address_waits_after_its_failures_and_others_do_not():
    attempts = Attempts(most=3, window_s=60.0)
    for second in range(3):
        assert attempts.wait_s("10.0.0.1", float(second)) == 0
        attempts.note_failure("10.0.0.1", float(second))
    assert attempts.wait_s("10.0.0.1", 10.0) == 50.0
    assert attempts.wait_s("10.0.0.2", 10.0) == 0
    assert attempts.wait_s("10.0.0.1", 60.0) == 0


def test_all_addresses_of_one_network_of_ipv6_wait_together():
    attempts = Attempts(most=1)
    attempts.note_failure("2001:db8::1", 0.0)
    assert attempts.wait_s("2001:db8::ffff", 1.0) > 0
    assert attempts.wait_s("2001:db8:0:1::1", 1.0) == 0


def test_the_addresses_that_are_kept_are_bounded():
    attempts = Attempts(most=1, addresses=10)
    for number in range(30):
        attempts.note_failure(f"10.0.0.{number}", 0.0)
    assert attempts.wait_s("10.0.0.0", 1.0) == 0
    assert attempts.wait_s("10.0.0.29", 1.0) > 0
