"""The pages over real HTTP: what everybody may see, and what every answer carries."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator

import pytest

from distributary.dashboard import DashboardSettings
from distributary.dashboard.pages import PAGES
from tests.dashboard.client import Client, read_events
from tests.dashboard.fake import HOSTILE, FakeControl
from tests.dashboard.served import serve
from tests.dashboard.services import BROKERS, TOPICS

PATHS = [page.path for page in PAGES]
POLICY = "default-src 'self'"


@pytest.fixture(scope="module")
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture(scope="module")
def client(control: FakeControl) -> Iterator[Client]:
    with serve(control, topics=TOPICS, brokers=BROKERS, every=0.05) as address:
        yield Client(address)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.key)
def test_a_page_is_a_shell_with_its_name_and_script(client: Client, page):
    answer = client.get(page.path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert f"<title>{page.name} · distributary</title>" in answer.text
    assert f'<a href="{page.path}" aria-current="page">{page.name}</a>' in answer.text
    assert answer.text.count("aria-current") == 1
    assert re.search(rf'<script type="module" src="/static/\w+/{page.key}.js">', answer.text)


@pytest.mark.parametrize("path", PATHS)
def test_a_page_has_nothing_inline_and_names_no_other_server(client: Client, path: str):
    text = client.get(path).text
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"<style|\bstyle=|\bon\w+=|javascript:", text)
    for link in re.findall(r'(?:href|src)="([^"]*)"', text):
        assert re.match(r"/(?!/)|#", link), link


def test_what_a_page_refers_to_is_there_and_may_be_kept_for_good(client: Client):
    links = set()
    for path in PATHS:
        links |= set(re.findall(r'(?:href|src)="(/static/[^"]*)"', client.get(path).text))
    assert len(links) > len(PATHS)
    for link in links:
        answer = client.get(link)
        assert answer.status == 200, link
        assert "immutable" in answer.headers["cache-control"]


def test_modules_import_only_modules_that_are_served(client: Client):
    found = re.search(r"/static/(\w+)/now\.js", client.get("/").text)
    assert found is not None
    seen, open_ends = set(), [f"{page.key}.js" for page in PAGES]
    while open_ends:
        name = open_ends.pop()
        if name in seen:
            continue
        seen.add(name)
        answer = client.get(f"/static/{found[1]}/{name}")
        assert answer.status == 200, name
        assert answer.headers["content-type"].startswith("text/javascript")
        open_ends += re.findall(r'from "\./([^"]+)"', answer.text)
    assert {"charts.js", "session.js", "network.js"} <= seen


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/api/history", 200),
        ("/static/old/page.css", 200),
        ("/static/old/none.js", 404),
        ("/nowhere", 404),
        ("/api/approve", 405),
        ("/api/flow?name=x", 404),
        ("/api/receivers?order=x", 400),
    ],
)
def test_every_answer_carries_the_security_headers(client: Client, path: str, status: int):
    answer = client.get(path)
    assert answer.status == status
    policy = answer.headers["content-security-policy"]
    assert policy.startswith(POLICY)
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["/static/x/..%2f..%2fpages.py", "/static/x/../pages.py", "/static/x/%2e%2e/app.py", "/static"],
)
def test_nothing_but_the_static_files_can_be_had(client: Client, path: str):
    assert client.get(path).status == 404


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "", "[evil]", "localhost.x"],
)
@pytest.mark.parametrize("path", ["/", "/events", "/api/plan"])
def test_a_foreign_name_that_leads_here_is_refused(client: Client, host: str, path: str):
    port = client.host.rpartition(":")[2]
    answer = client.get(path, {"Host": host.format(port=port)})
    assert answer.status == 421
    assert "is not a name of this server" in answer.says


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:8088", "10.1.2.3"]
)
def test_addresses_and_localhost_are_names_of_this_server(client: Client, host: str):
    assert client.get("/", {"Host": host}).status == 200


def test_text_is_compressed_for_who_can_read_it(client: Client):
    plain = client.get("/api/history")
    packed = client.get("/api/history", {"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(gzip.decompress(packed.body)) / 3
    assert packed.json.keys() == plain.json.keys()


def test_the_first_load_is_small(client: Client):
    """All but the charts: a page, its style and its modules, as a browser gets them."""
    gzipped = {"Accept-Encoding": "gzip"}
    for path in PATHS:
        page = client.get(path, gzipped)
        links = set(re.findall(r'(?:href|src)="(/static/[^"]*)"', page.text))
        total = len(page.body) + sum(len(client.get(link, gzipped).body) for link in links)
        assert total < 24_000, path


def test_a_name_in_an_address_is_not_in_the_page(client: Client):
    for path in (f"/receivers?name={HOSTILE}", f"/plan?flow={HOSTILE}"):
        path = path.replace("<", "%3C").replace(">", "%3E").replace("'", "%27")
        assert "alert(" not in client.get(path).text


def test_hostile_names_travel_as_json_that_no_browser_takes_for_a_page(client: Client):
    answer = client.get("/api/receivers")
    assert HOSTILE in [row["name"] for row in answer.json["rows"]]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


# --- answers --------------------------------------------------------------------------------------


def test_history_comes_as_columns(client: Client):
    found = client.get("/api/history").json
    assert {len(column) for column in found.values()} == {601}
    assert found["at"] == sorted(found["at"])
    assert set(found["version"]) == {6, 7}


def test_receivers_come_worst_first(client: Client):
    rows = client.get("/api/receivers").json["rows"]
    assert not rows[0]["alive"]
    assert rows[1]["missing"] == 19
    assert rows[2]["unserved"]
    dropped = [sum(_dropped(row)) for row in rows[3:]]
    assert dropped == sorted(dropped, reverse=True)


@pytest.mark.parametrize(
    ("order", "key"),
    [
        ("name", lambda row: row["name"]),
        ("cpu", lambda row: -row["cpu_share"]),
        ("wanted", lambda row: -row["waste"]["wanted"]),
        ("dropped", lambda row: -sum(_dropped(row))),
        ("missing", lambda row: -row["missing"]),
    ],
)
def test_receivers_come_in_the_order_asked_for(client: Client, order: str, key):
    keys = [key(row) for row in client.get(f"/api/receivers?order={order}").json["rows"]]
    assert keys == sorted(keys)


def test_receivers_can_be_found_by_a_part_of_their_name(client: Client):
    found = client.get("/api/receivers?find=RATES&order=name").json
    assert [row["name"] for row in found["rows"]] == ["rates-01", "rates-02"]
    assert (found["found"], found["known"]) == (2, 12)


def test_an_unknown_order_is_refused_with_those_there_are(client: Client):
    answer = client.get("/api/receivers?order=sideways")
    assert answer.status == 400
    assert answer.says.startswith("'sideways' is not an order; use one of worst, dropped")


def test_what_the_control_plane_does_not_know_is_said_in_its_words(client: Client):
    for path, says in (
        ("/api/flow?name=XX", "flow 'XX' is not in the plan, and nobody wants it"),
        ("/api/receiver?name=nobody", "no receiver is called 'nobody'"),
    ):
        answer = client.get(path)
        assert (answer.status, answer.says) == (404, says)


def test_the_plan_a_flow_and_a_receiver_are_answered(client: Client):
    plan = client.get("/api/plan").json
    assert (plan["version"], len(plan["groups"])) == (7, 24)
    flow = client.get("/api/flow?name=EQ.02.014").json
    assert (flow["session"], flow["group"]) == (17, 5)
    receiver = client.get("/api/receiver?name=rates-01").json
    assert receiver["status"]["name"] == "rates-01"
    assert len(receiver["history"]) == 61


def test_changes_come_newest_first(client: Client):
    found = [entry["number"] for entry in client.get("/api/changes").json]
    assert found == sorted(found, reverse=True)


def test_a_service_that_does_not_answer_leaves_the_others_there(client: Client):
    found = client.get("/api/brokers").json
    assert [each["status"] is not None for each in found] == [True, True, False]
    assert "no broker answers" in found[2]["says"]
    assert client.get("/api/topics").json[0]["status"]["clusters"]


# --- events ---------------------------------------------------------------------------------------


def test_events_bring_new_states_for_as_long_as_one_watches(client: Client):
    with client.watch() as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["content-security-policy"].startswith(POLICY)
        events = read_events(response)
        found = [next(events) for _ in range(3)]
    numbers = [each["number"] for each in found]
    assert numbers == sorted(set(numbers))
    assert all(each["away"] is None for each in found)
    assert found[0]["control"]["force"]["version"] == 7
    assert found[0]["control"]["receivers"]["known"] == 12


def test_while_the_control_plane_is_away_the_last_state_stays_with_since_when():
    control = FakeControl()
    with serve(control, every=0.05) as address, Client(address).watch() as response:
        events = read_events(response)
        known = next(events)
        control.away = "the server is gone;\n  start it"
        away = [next(each for each in events if each["away"]) for _ in range(2)]
        assert away[0]["away"]["says"] == "the server is gone; start it"
        assert away[0]["away"]["since"] == away[1]["away"]["since"]
        assert away[1]["control"]["force"] == known["control"]["force"]
        answer = Client(address).get("/api/plan")
        assert (answer.status, answer.says) == (503, "the server is gone; start it")
        control.away = ""
        assert next(each for each in events if not each["away"])["control"]


def test_a_control_plane_that_never_answered_is_away_with_nothing_known():
    control = FakeControl()
    control.away = "nobody is there"
    with serve(control, every=0.05) as address:
        with Client(address).watch() as response:
            found = next(read_events(response))
        assert found["control"] is None
        assert found["away"]["says"] == "nobody is there"
        answer = Client(address).get("/api/receivers")
        assert (answer.status, answer.says) == (503, "nobody is there")


def test_one_browser_too_many_is_asked_to_come_again():
    with serve(FakeControl(), every=0.05, most_browsers=2) as address:
        client = Client(address)
        with client.watch() as one, client.watch() as other:
            next(read_events(one))
            next(read_events(other))
            answer = client.get("/events")
            assert (answer.status, answer.says) == (503, "2 browsers watch already; close one")
            assert answer.headers["retry-after"] == "10"
            assert client.get("/").status == 200


def test_events_are_of_one_size_however_many_receivers_and_pins_there_are():
    sizes = []
    for receivers in (50, 1_000):
        control = FakeControl(receivers=receivers, groups=500, flows=10_000, more_versions=100)
        control.pins = {f"EQ.{number}": number % 500 for number in range(10 * receivers)}
        control.limits = f"# {'x' * 100 * receivers}\n"
        with serve(control, every=0.05) as address, Client(address).watch() as response:
            line = next(iter(response.readline, b"never"))
            while not line.startswith(b"data: "):
                line = response.readline()
            sizes.append(len(line))
            rows = Client(address).get("/api/receivers").json
            assert rows["known"] == receivers
            assert len(rows["rows"]) == min(receivers, 100)
    assert max(sizes) < 12_000
    assert abs(sizes[0] - sizes[1]) < 200


def test_names_given_to_the_server_are_its_names():
    with serve(FakeControl(), names=("desk.example",)) as address:
        client = Client(address)
        assert client.get("/", {"Host": "desk.example:80"}).status == 200
        assert client.get("/", {"Host": "Desk.Example."}).status == 200
        assert client.get("/", {"Host": "other.example"}).status == 421


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"port": 70_000}, "70000 is not a port"),
        ({"token": "short"}, "the operator's token has 5 characters; give at least 16"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, says: str):
    with pytest.raises(ValueError, match=says):
        DashboardSettings(**settings)


def test_settings_do_not_show_the_token():
    assert "secret" not in repr(DashboardSettings(token="secret secret secret"))


def _dropped(row) -> tuple[float, float]:
    return row["waste"]["dropped_first"], row["waste"]["dropped_second"]
