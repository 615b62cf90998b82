"""The search server over HTTP: the reference server's answers, its errors as JSON, limits, and one fault at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.server import ServerLimits, create_app
from trajectory_platform.sandbox.server_log import EscapingFormatter
from trajectory_platform.sandbox.server_metrics import CELLS, Metrics
from trajectory_platform.sandbox.tools import World, call_tool
from trajectory_platform_tests.sandbox.market import product, world_of

LIMITS = ServerLimits(max_url_bytes=2_000, max_body_bytes=1_000, max_ids=3, max_query_chars=100, body_timeout_s=0.2)


@pytest.fixture(scope="module")
def world() -> World:
    return world_of(
        product("1", title="blue mug", sku_options={"1": {"color": "blue"}}, attributes={"material": ["Clay"]}),
        product("2", title="blue mug with a long wooden handle", shop_id="s2", price=80.5, description="hand made"),
        product("3", title="tea box", shop_id="s2", price=20.25, service=["COD"]),
        product("4", title="tea box \u00e9\u4e00", shop_id="s3"),
    )


@pytest.fixture(scope="module")
def client(world: World) -> Iterator[Any]:
    with _client(world, limits=LIMITS) as found:
        yield found


def _client(world: Any, **options: Any) -> Any:
    from starlette.testclient import TestClient

    return TestClient(create_app(world, **options), raise_server_exceptions=False)


# ------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("prefix", ["", "/search"])
def test_find_product_answers_as_the_index_does(client: Any, world: World, prefix: str) -> None:
    sent = {"q": "mug", "page": "1", "price": "50-90", "sort": "priceasc", "shop_id": "s2", "service": "", "more": "x"}
    answer = client.get(f"{prefix}/find_product", params=sent)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json() == world.index.find({name: sent[name] for name in sent if name != "more"})
    assert [row["product_id"] for row in answer.json()] == ["2"]


def test_the_server_has_no_default_page_and_takes_the_first_of_two_values(client: Any) -> None:
    assert client.get("/find_product?q=mug").json() == []
    assert len(client.get("/find_product?q=mug&page=1&page=9&q=drum").json()) == 2
    assert client.get("/find_product").json() == []


def test_a_query_that_the_client_encoded_twice_finds_the_same(client: Any) -> None:
    """The reference agent quotes the words before its client encodes them (domain 1.5)."""
    plain, twice = (
        client.get("/find_product", params={"q": q, "page": 1}) for q in ("blue mug", quote_plus("blue mug"))
    )
    assert plain.json() == twice.json() != []


@pytest.mark.parametrize("prefix", ["", "/search"])
def test_view_does_not_strip_and_leaves_unknown_ids_out(client: Any, prefix: str) -> None:
    rows = client.get(f"{prefix}/view_product_information", params={"product_ids": "3, 1,2"}).json()
    assert [row["product_id"] for row in rows] == ["3", "2"]
    assert list(rows[0]) == ["product_id", "short_description", "description", "sku_options", "attributes"]


def test_raw_documents_are_for_the_scorer_not_for_agents(client: Any, world: World) -> None:
    answer = client.get("/get_product_raw", params={"product_ids": "4,9"})
    assert answer.json() == [world.catalogue.get("4")]
    assert client.get("/get_product_raw").json() == [], "the reference's default is no id"
    refused = client.get("/search/get_product_raw", params={"product_ids": "4"})
    assert (refused.status_code, refused.json()) == (403, {"error": "forbidden"})


def test_health_and_usage(client: Any) -> None:
    assert client.get("/health").json() == {"status": "healthy", "service": "search-server"}
    assert client.head("/health").status_code == 200
    assert client.get("/").json()["/find_product"] == "q,page,shop_id,price,sort,service"


@pytest.mark.parametrize("prefix", ["", "/search"])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("find_product", {"q": "mug"}),
        ("view_product_information", {"product_ids": "1,2"}),
        ("view_product_information", {}),
        ("check_product_match", {"product_id": "1", "requirements": '{"color": "blue"}'}),
        ("find_products_in_same_shop", {"product_queries": '[{"q": "mug"}, {"q": "tea box"}]'}),
        (
            "calculate_voucher",
            {"product_prices": "1,2", "voucher_type": "fixed", "discount_value": 1, "threshold": 1, "budget": 5},
        ),
        ("calculate_voucher", {"product_prices": "1,2", "voucher_type": "platform"}),
    ],
)
def test_a_dispatched_tool_answers_what_the_agent_would_get(
    client: Any, world: World, prefix: str, tool: str, arguments: dict[str, Any]
) -> None:
    answer = client.post(f"{prefix}/{tool}", content=json.dumps(arguments))
    assert answer.status_code == 200
    assert answer.json() == call_tool(world, tool, arguments)


def test_an_empty_body_has_no_arguments(client: Any) -> None:
    assert client.post("/search/view_product_information").json() == {"error": "product_ids is missing"}


# ------------------------------------------------------------------------------------------- errors and limits


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/find_product?q=mug&page=%C2%B2", 500),  # a superscript digit: domain 3
        ("/view_product_information", 500),
        ("/view_product_information?product_ids=", 200),
        ("/nothing", 404),
        ("/find_product/", 404),
        ("/calculate_voucher", 405),
        ("/search/metrics", 404),
        ("/find_product?page=1&q=" + "x" * 101, 400),
        ("/find_product?page=1&q=" + "x" * 2_000, 414),
        ("/view_product_information?product_ids=1,2,3", 200),
        ("/view_product_information?product_ids=1,2,3,4", 400),
        ("/get_product_raw?product_ids=1,2,3,4", 400),
        ("/find_product?" + "&".join(f"a{n}=1" for n in range(60)), 400),
    ],
)
def test_status_of_a_bad_request(client: Any, target: str, status: int) -> None:
    answer = client.get(target)
    assert answer.status_code == status
    if status != 200:
        assert list(answer.json()) == ["error"] and answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"1", 400),
        (b"\xff", 400),
        (b'{"a": 1, "a": 2}', 400),
        (b"[" * 300, 400),
        (b'{"q": "' + b"x" * 101 + b'"}', 400),
        (b'{"product_ids": "1,2,3,4"}', 400),
        (b'{"q": "' + b"x" * 1_000 + b'"}', 413),
        (b'{"q": "\\ud800 mug"}', 200),
    ],
)
def test_status_of_a_bad_body(client: Any, body: bytes, status: int) -> None:
    answer = client.post("/search/find_product", content=body)
    assert answer.status_code == status
    if status != 200:
        assert list(answer.json()) == ["error"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("check_product_match", {"product_id": "1,2,3,4", "requirements": "{}"}),
        ("find_products_in_same_shop", {"product_queries": [{"q": "mug"}, {"q": "x" * 101}]}),
        ("find_products_in_same_shop", {"product_queries": json.dumps([{"q": "x" * 101}])}),
    ],
)
def test_limits_hold_for_every_tool(client: Any, tool: str, arguments: dict[str, Any]) -> None:
    """A product id of 60,000 commas is 60,000 look-ups while nobody else is answered."""
    answer = client.post(f"/{tool}", content=json.dumps(arguments))
    assert answer.status_code == 400 and "more than" in answer.json()["error"]


def _post(world: World, receive: Any) -> int:
    """The status of a POST whose body comes from ``receive``."""
    import asyncio

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/find_product",
        "raw_path": b"/find_product",
        "query_string": b"",
        "headers": [],
    }
    asyncio.run(create_app(world, limits=LIMITS)(scope, receive, send))
    return int(sent[0]["status"])


def test_a_body_that_does_not_arrive_is_given_up(world: World) -> None:
    import asyncio

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(5)
        raise AssertionError("waited for the body")

    assert _post(world, receive) == 408


def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_fault(world: World) -> None:
    parts = [{"type": "http.request", "body": b'{"q"', "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    assert _post(world, receive) == 400


def test_a_fault_ends_one_request_and_no_other(world: World) -> None:
    broken = [True]

    def current() -> World:
        if broken[0]:
            raise RuntimeError("a secret\nof ours")
        return world

    with _client(current) as client:
        answer = client.get("/find_product?q=mug&page=1")
        assert (answer.status_code, answer.json()) == (500, {"error": "internal error (RuntimeError)"})
        broken[0] = False
        assert client.get("/find_product?q=mug&page=1").status_code == 200


def test_too_many_connections_are_told_to_come_back(world: World) -> None:
    with _client(world, limits=ServerLimits(max_connections=5), connections=lambda: 6) as client:
        answer = client.get("/health")
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1" and "error" in answer.json()


def test_requests_beyond_the_limit_in_flight_are_refused(world: World) -> None:
    import asyncio

    app = create_app(world, limits=ServerLimits(max_in_flight=2, body_timeout_s=0.3))
    statuses: list[int] = []

    async def request() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.sleep(5)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        path = "/find_product"
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        await app({**scope, "headers": []}, receive, send)

    async def five() -> None:
        await asyncio.gather(*(request() for _ in range(5)))

    asyncio.run(five())
    assert sorted(statuses) == [408, 408, 503, 503, 503]


@given(st.dictionaries(st.sampled_from(["q", "page", "shop_id", "price", "sort", "service", "x"]), st.text(max_size=9)))
def test_whatever_is_asked_is_answered_like_the_index(client: Any, world: World, sent: dict[str, str]) -> None:
    """Invalid UTF-8 apart, which becomes U+FFFD on the way."""
    clean = {name: value.encode("utf-8", "replace").decode() for name, value in sent.items()}
    answer = client.get("/find_product", params=clean)
    if answer.status_code == 500:
        with pytest.raises(ValueError, match="page"):
            world.index.find(clean)
    elif answer.status_code == 200:
        assert answer.json() == world.index.find({name: value for name, value in clean.items() if name != "x"})
    else:
        assert answer.status_code == 400 and len(clean["q"]) > 100


@given(st.sampled_from(["find_product", "check_product_match", "calculate_voucher"]), st.binary(max_size=60))
def test_no_body_breaks_the_server(client: Any, tool: str, body: bytes) -> None:
    answer = client.post(f"/search/{tool}", content=body)
    assert answer.status_code in (200, 400)
    answer.json()


def test_request_text_in_an_error_is_shown_escaped(client: Any) -> None:
    text = client.get("/find_product", params={"q": "mug", "page": "\u202e\u00b2"}).text
    assert "\u202e" not in text


def test_a_log_record_is_one_line_of_printable_text() -> None:
    import logging

    record = logging.LogRecord("x", logging.ERROR, "f", 1, "GET %s", ("/a\r\n2026 INFO forged\x1b[2J\u202e",), None)
    line = EscapingFormatter("%(message)s").format(record)
    assert line.isprintable() and "forged" in line


# ------------------------------------------------------------------------------------------- parity and state


def test_real_requests_of_the_shared_days_are_answered(shared: Path) -> None:
    """Every search request that the days' proxy logs hold, sent as it was sent; what was found then is found now."""
    from trajectory_platform.sources.container import Limits, open_artifact

    catalogue = load_products(shared / "days" / "2026-05-02" / "catalogue" / "products.jsonl")
    requests: dict[str, tuple[str, dict[str, Any], Any]] = {}
    for row in map(json.loads, (shared / "days" / "truth.jsonl").open()):
        if row["artifact_form"] != "json_array_gzip" or row["malformed"] or row["flags"] or row["forged_log"]:
            continue
        for record in open_artifact((shared / "days" / row["artifact"]).read_bytes(), Limits()).records:
            for step in record.steps or []:
                for call in step["extra_info"].get("proxy_calls") or []:
                    if call["method"] == "GET" and "response" in call:
                        key = json.dumps([call["path"], call["params"]], sort_keys=True)
                        requests.setdefault(key, (call["path"], call["params"], call["response"]))
    compared = {"/search/find_product": 0, "/search/view_product_information": 0}
    with _client(World(catalogue, SearchIndex(catalogue))) as client:
        for path, params, response in requests.values():
            answer = client.get(path, params=params)
            assert answer.status_code == 200, params
            if path.endswith("view_product_information"):
                assert answer.json() == response
                compared[path] += 1
            elif len(response) < 10:  # a shorter page does not depend on the fine ranking
                ours, theirs = ({row["product_id"] for row in rows} for rows in (answer.json(), response))
                compared[path] += ours == theirs
    assert compared["/search/view_product_information"] > 100
    assert compared["/search/find_product"] > 20


def test_another_world_is_served_from_the_next_request_on(world: World) -> None:
    current = [world]
    with _client(lambda: current[0]) as client:
        assert len(client.get("/find_product?q=mug&page=1").json()) == 2
        current[0] = world_of(product("7", title="mug"))
        assert [row["product_id"] for row in client.get("/find_product?q=mug&page=1").json()] == ["7"]


def test_metrics_count_requests_by_endpoint_and_status(world: World) -> None:
    with _client(world) as client:
        for target in ("/find_product?q=mug&page=1", "/search/find_product?q=mug&page=1", "/view_product_information"):
            client.get(target)
        client.get("/secret-text-of-an-agent")
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.text
    assert 'sandbox_requests_total{endpoint="find_product",status="200"} 2\n' in text
    assert 'sandbox_requests_total{endpoint="view_product_information",status="500"} 1\n' in text
    assert 'sandbox_requests_total{endpoint="other",status="404"} 1\n' in text
    assert "secret" not in text, "no text of a request becomes a label"
    assert 'sandbox_catalogue_products{worker="0"} 4\n' in text
    assert "sandbox_requests_in_flight 1\n" in text, "the request for the metrics itself"
    assert re.search(r'sandbox_resident_memory_bytes\{worker="0"\} \d{7,}\n', text)


def test_metrics_are_well_formed_and_buckets_are_cumulative() -> None:
    metrics = Metrics()
    for seconds in (0.0001, 0.0005, 0.003, 99.0):
        metrics.observe("health", 200, seconds)
    metrics.observe("\n", 418, 0.1)
    text = metrics.text("ab12")
    line = re.compile(r'[a-z_]+(\{[a-z_]+="[^"\n]*"(,[a-z_]+="[^"\n]*")*\})? [0-9.]+')
    for entry in text.splitlines():
        assert entry.startswith("# HELP ") or entry.startswith("# TYPE ") or line.fullmatch(entry), entry
    values = [float(found) for found in re.findall(r'bucket\{endpoint="health",le="[^"]+"\} (\d+)', text)]
    assert values == sorted(values) and values[0] == 2 and values[-1] == 4
    assert 'sandbox_request_seconds_count{endpoint="health"} 4\n' in text
    assert 'sandbox_requests_total{endpoint="other",status="other"} 1\n' in text


def test_any_worker_answers_for_all() -> None:
    cells = [0.0] * (2 * CELLS)
    first, second = Metrics(cells, 0), Metrics(cells, 1)
    first.observe("health", 200, 0.1)
    second.observe("health", 200, 0.1)
    second.in_flight(1)
    assert 'status="200"} 2\n' in first.text() and first.text() == second.text()
    assert "sandbox_requests_in_flight 0\n" in Metrics(cells, 1).text(), "a replaced worker answers nothing"
