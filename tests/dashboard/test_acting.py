"""Who may act on the pages, over real HTTP: the token, sessions, and requests from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dashboard.client import Client
from tests.dashboard.fake import FakeControl
from tests.dashboard.served import TOKEN, serve

ACTIONS = {
    "approve": {"number": 41},
    "reject": {"number": 41, "why": "not today"},
    "roll-back": {"version": 3},
    "pin": {"flow": "EQ.02.014", "group": 3},
    "mode": {"mode": "auto"},
}


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def client(control: FakeControl) -> Iterator[Client]:
    with serve(control, every=0.05) as address:
        yield Client(address)


def _count_orders(control: FakeControl) -> int:
    return sum(control.asked[name] for name in ("approve", "reject", "rollback", "pin", "mode"))


def test_a_session_begins_with_the_token(client: Client):
    before = client.get("/api/session").json
    assert before == {"operator": None, "csrf": "", "can_sign_in": True}
    answer = client.sign_in(" ann  lee ")
    assert answer.status == 200
    assert answer.json["operator"] == "ann lee"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/" in cookie
    assert TOKEN not in cookie
    assert client.get("/api/session").json["operator"] == "ann lee"
    assert answer.headers["cache-control"] == "no-store"


def test_a_wrong_token_is_refused_and_after_five_one_waits(client: Client):
    for _ in range(5):
        answer = client.sign_in(token="x" * 20)
        assert (answer.status, answer.says[:35]) == (403, "this is not the operator's token; c")
    answer = client.sign_in()
    assert answer.status == 429
    assert answer.says.startswith("too many wrong tokens")
    assert 0 < int(answer.headers["retry-after"]) <= 61


@pytest.mark.parametrize("name", ["", "   ", "n" * 61, "a\x07b", "a\u202eb"])
def test_a_name_for_the_log_must_be_one(client: Client, name: str):
    answer = client.sign_in(name)
    assert (answer.status, answer.says[:26]) == (400, "give a name of up to 60 ch")


@pytest.mark.parametrize("name", ACTIONS)
def test_an_operator_may_act_under_their_name(client: Client, control: FakeControl, name: str):
    client.sign_in("ann")
    answer = client.post(f"/api/{name}", ACTIONS[name])
    assert answer.status == 200, answer.text
    assert answer.json["says"]
    assert _count_orders(control) == 1
    assert control.audit[-1].who == "ann"


@pytest.mark.parametrize("name", ACTIONS)
def test_nobody_else_may_act(client: Client, control: FakeControl, name: str):
    answer = client.post(f"/api/{name}", ACTIONS[name])
    assert (answer.status, answer.says) == (401, "sign in with the operator's token first")
    assert _count_orders(control) == 0


@pytest.mark.parametrize("name", [*ACTIONS, "sign-out"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-CSRF-Token": None}, 403),
        ({"X-CSRF-Token": "guessed"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": None}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_request_from_elsewhere_changes_nothing(
    shared: tuple[FakeControl, Client], name: str, headers, status: int
):
    control, client = shared
    answer = client.post(f"/api/{name}", ACTIONS.get(name, {}), headers)
    assert answer.status == status
    assert _count_orders(control) == 0
    assert client.get("/api/session").json["operator"] == "ann"


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[FakeControl, Client]]:
    """A server that nothing changes, with an operator."""
    control = FakeControl()
    with serve(control, every=0.05) as address:
        client = Client(address)
        client.sign_in("ann")
        yield control, client


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        ({"number": 41}, {"Content-Type": "text/plain"}, 415, "send JSON, as application/json"),
        (
            {"number": 41},
            {"Content-Type": "application/x-www-form-urlencoded"},
            415,
            "send JSON, as application/json",
        ),
        (b'{"number": 4', {}, 400, "the request cannot be used: Input data was truncated"),
        ({"number": "41"}, {}, 400, "the request cannot be used: Expected `int`, got `str`"),
        ({}, {}, 400, "the request cannot be used: Object missing required field `number`"),
        (b"[" * 16_000, {}, 400, "the request cannot be used"),
        ({"number": 41, "x": "x" * 20_000}, {}, 413, "the request has more than 16,384 bytes"),
        ({"number": 40}, {}, 409, "proposal 40 is gone; look at the newest one"),
    ],
)
def test_a_request_that_cannot_be_used_is_refused(
    shared: tuple[FakeControl, Client], body, headers, status: int, says: str
):
    _, client = shared
    number = client.get("/api/changes").json[0]["number"]
    answer = client.post("/api/approve", body, headers)
    assert answer.status == status
    assert answer.says.startswith(says)
    assert client.get("/api/changes").json[0]["number"] == number


def test_what_the_control_plane_denies_is_said_in_its_words(client: Client):
    client.sign_in()
    answer = client.post("/api/pin", {"flow": "EQ.02.014", "group": 99})
    assert (answer.status, answer.says) == (409, "there is no group 99; the last one is 23")


def test_an_order_to_a_control_plane_that_is_away_says_so(client: Client, control: FakeControl):
    client.sign_in()
    control.away = "no service answers; start one"
    answer = client.post("/api/approve", {"number": 41})
    assert (answer.status, answer.says) == (503, "no service answers; start one")


def test_after_an_order_everybody_sees_what_came_of_it(client: Client):
    client.sign_in("ann")
    assert client.get("/api/changes").json[0]["what"] != "approved"
    client.post("/api/approve", {"number": 41})
    assert [each["what"] for each in client.get("/api/changes").json[:2]] == [
        "in force",
        "approved",
    ]


def test_a_session_ends_and_its_cookie_with_it(client: Client):
    client.sign_in()
    answer = client.post("/api/sign-out", {})
    assert answer.status == 200
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert client.get("/api/session").json["operator"] is None
    assert client.post("/api/approve", {"number": 41}).status == 401


def test_a_cookie_that_was_changed_is_no_session(client: Client):
    client.sign_in()
    name, _, value = client.cookie.partition("=")
    content, _, signature = value.partition(".")
    for forged in (
        f"{content}.{signature[:-2]}AA",
        f"{content[:-4]}AAAA.{signature}",
        content,
        f".{signature}",
        "a.b.c",
        "é",
        "",
    ):
        client.cookie = f"{name}={forged}".encode().decode("latin-1")
        assert client.get("/api/session").json["operator"] is None


def test_a_session_of_another_server_is_none_here(client: Client):
    with serve(FakeControl()) as address:
        other = Client(address)
        other.sign_in()
    client.cookie = other.cookie.replace(
        other.host.rpartition(":")[2], client.host.rpartition(":")[2]
    )
    assert client.get("/api/session").json["operator"] is None


def test_without_a_token_the_pages_are_read_only_for_everybody():
    control = FakeControl()
    with serve(control, token="", every=0.05) as address:
        client = Client(address)
        assert client.get("/api/session").json["can_sign_in"] is False
        for token in ("", TOKEN):
            answer = client.sign_in(token=token)
            assert (answer.status, answer.says[:25]) == (403, "these pages are read-only")
        for name, body in ACTIONS.items():
            assert client.post(f"/api/{name}", body).status == 401
    assert _count_orders(control) == 0
