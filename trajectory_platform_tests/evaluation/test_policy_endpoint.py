"""An endpoint as a policy, against a real HTTP server: what is sent, what is accepted, how faults end."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from trajectory_platform.errors import Abort, RetryLater
from trajectory_platform.evaluation.environment import Reply, TurnRequest
from trajectory_platform.evaluation.policy_endpoint import EndpointPolicy, Price, endpoint_url
from trajectory_platform.evaluation.policy_sampling import Sampling
from trajectory_platform.sandbox.tools import TOOLS
from trajectory_platform.traces.toolcalls import parse_reply
from trajectory_platform_tests.evaluation.chat_server import Answer, ChatServer, Received, completion, refusal
from trajectory_platform_tests.evaluation.policy_requests import drive, request, task

HELLO = Answer(completion("hello"))
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "a mug"},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "look first",
        "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "find_product", "arguments": '{"q":"mug"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "name": "find_product", "content": "[]" + "x" * 100},
]


class Pauses:
    """Stands for waiting: notes how long, and waits a moment only."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


def ask(
    server: ChatServer, asked: TurnRequest | None = None, *, pauses: Pauses | None = None, **options: Any
) -> tuple[Reply, EndpointPolicy]:
    policy = EndpointPolicy(server.url, "m", sleep=pauses or Pauses(), **options)

    async def one() -> Reply:
        async with policy:
            return await policy.reply(asked or request())

    return asyncio.run(one()), policy


def answered(*answers: Answer, **options: Any) -> tuple[Reply, EndpointPolicy, list[Received]]:
    with ChatServer(list(answers)) as server:
        reply, policy = ask(server, **options)
        return reply, policy, server.received


def test_the_request_holds_the_canonical_messages_in_the_form_of_the_api() -> None:
    with ChatServer([HELLO]) as server:
        asked = request(turn=1, messages=HISTORY, reply_tokens=64, max_result_chars=10)
        ask(server, asked, sampling=Sampling(temperature=0.5, top_p=0.9, seed=4))
        [received] = server.received
    assert received.path == "/v1/chat/completions"
    body = received.body
    assert body["messages"][0] == {"role": "user", "content": "a mug"}
    assert body["messages"][1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": HISTORY[1]["tool_calls"],
    }
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_0", "content": "[]xxxxxxxx\n[cut]"}
    assert body["tools"] == TOOLS
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"]) == ("m", 0.5, 0.9, 64)
    assert 0 <= body["seed"] < 2**31
    assert "authorization" not in received.headers


def test_thinking_is_sent_back_only_where_it_is_asked_for() -> None:
    with ChatServer([HELLO]) as server:
        ask(server, request(turn=1, messages=HISTORY), reasoning="field")
        assert server.received[0].body["messages"][1]["reasoning_content"] == "look first"


def test_fields_of_the_request_can_be_added_and_removed() -> None:
    body = {"seed": None, "max_tokens": None, "max_completion_tokens": 9, "top_k": 20}
    with ChatServer([HELLO]) as server:
        _, policy = ask(server, body=body)
        sent = server.received[0].body
    assert (sent["top_k"], sent["max_completion_tokens"]) == (20, 9)
    assert not {"seed", "max_tokens"} & set(sent)
    assert policy.name != EndpointPolicy(policy.base_url, "m").name  # another request is another identity


def test_every_turn_has_a_seed_of_its_own_that_repeats() -> None:
    def seeds(*asked: TurnRequest, **options: Any) -> list[int]:
        with ChatServer([HELLO]) as server:
            for one in asked:
                ask(server, one, **options)
            return [received.body["seed"] for received in server.received]

    asked = [request(task(1)), request(task(1), turn=1), request(task(2)), request(task(1, sample=1))]
    first = seeds(*asked)
    assert len(set(first)) == 4
    assert seeds(*reversed(asked)) == first[::-1]
    assert seeds(asked[0], sampling=Sampling(seed=1)) != first[:1]


@pytest.mark.parametrize(
    "body",
    [
        completion("look\n", calls=[("find_product", {"q": "mug"})]),
        completion(None, calls=[("find_product", {"q": "mug"})]),
        completion('<think>look</think><tool_call>[{"name": "find_product", "parameters": {"q": "mug"}}]</tool_call>'),
        completion('<tool_call>\n{"name": "find_product", "arguments": {"q": "mug"}}\n</tool_call>'),
        completion(
            [{"type": "text", "text": '```json\n[{"tool": "find_product", "arguments": {"query": "mug"}}]\n```'}]
        ),
        completion(None, function_call={"name": "find_product", "arguments": '{"q": "mug"}'}),
    ],
    ids=["native", "native_without_content", "xml_array", "xml_block", "parts_fenced_alias", "function_call"],
)
def test_calls_arrive_in_whatever_form_they_were_written(body: dict[str, Any]) -> None:
    reply, _, _ = answered(Answer(body))
    assert reply.error is None
    assert [call.name for call in parse_reply(reply.content, reply.tool_calls).calls] == ["find_product"]


def test_thinking_usage_and_finish_reason_are_taken_over() -> None:
    reply, policy, _ = answered(
        Answer(completion("so", finish="length", usage=(1000, 500), reasoning_content="hm")), price=Price(2.0, 10.0)
    )
    assert (reply.reasoning_content, reply.finish_reason) == ("hm", "length")
    assert (reply.prompt_tokens, reply.completion_tokens) == (1000, 500)
    assert reply.cost_usd == pytest.approx(0.007)
    assert reply.seconds > 0
    assert policy.priced and policy.counts["unpriced"] == 0
    assert answered(Answer(completion("so", reasoning="hm")))[0].reasoning_content == "hm"  # the other name in use


@pytest.mark.parametrize(
    "usage",
    [None, {}, [], {"prompt_tokens": "12", "completion_tokens": -1}, {"prompt_tokens": True, "completion_tokens": 1.5}],
    ids=["absent", "empty", "list", "text", "odd_types"],
)
def test_usage_that_was_not_reported_is_unknown_and_its_cost_is_counted_as_such(usage: Any) -> None:
    reply, policy, _ = answered(Answer(completion("hi", usage=usage)), price=Price(1.0, 1.0))
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cost_usd) == (None, None, 0.0)
    assert policy.counts["unpriced"] == 1


def test_without_a_price_the_cost_is_no_number_to_trust() -> None:
    reply, policy, _ = answered(HELLO)
    assert reply.cost_usd == 0.0 and not policy.priced


def test_a_rate_limit_is_waited_out_as_long_as_the_server_says() -> None:
    pauses = Pauses()
    reply, policy, received = answered(
        refusal(429, "slow down", Retry_After="3"), refusal(503, Retry_After_Ms="1500"), HELLO, pauses=pauses
    )
    assert reply.content == "hello" and len(received) == 3
    assert 3.0 <= pauses.seconds[0] <= 3.3
    assert 1.5 <= pauses.seconds[1] <= 1.65
    assert policy.counts["retries"] == 2 and policy.counts["failures"] == 0


def test_a_date_to_retry_after_is_read_against_the_server_s_own_clock() -> None:
    pauses = Pauses()
    date = {"Date": "Wed, 01 Jan 2020 00:00:00 GMT", "Retry_After": "Wed, 01 Jan 2020 00:00:07 GMT"}
    answered(refusal(429, **date), HELLO, pauses=pauses)
    assert 7.0 <= pauses.seconds[0] <= 7.7


@pytest.mark.parametrize("header", ["soon", "-5", "nan", "inf", ""])
def test_an_unreadable_wait_is_replaced_by_our_own_backoff(header: str) -> None:
    pauses = Pauses()
    reply, _, _ = answered(refusal(500, Retry_After=header), refusal(502), refusal(504), HELLO, pauses=pauses)
    assert reply.content == "hello"
    for seconds, most in zip(pauses.seconds, (0.5, 1.0, 2.0), strict=True):
        assert 0.75 * most <= seconds <= most


def test_repeating_is_bounded_by_attempts_and_by_the_time_of_the_reply() -> None:
    reply, _, received = answered(refusal(500, "broken"), attempts=3)
    assert reply.error == "http_500: test_error broken" and len(received) == 3
    with ChatServer([refusal(429, Retry_After="3600")]) as server:
        reply, _ = ask(server, request(reply_timeout_s=60))
        assert reply.error is not None and reply.error.startswith("http_429")
        assert len(server.received) == 1  # an hour is longer than anybody waits for this reply


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 302])
def test_a_refusal_is_final_at_once(status: int) -> None:
    reply, policy, received = answered(refusal(status, "no such thing", Location="/elsewhere"))
    assert reply.error == f"http_{status}: test_error no such thing"
    assert reply.content is None and len(received) == 1
    assert policy.counts["failures"] == 1


def test_an_empty_account_is_not_a_rate_limit() -> None:
    reply, _, received = answered(refusal(429, "pay first", code="insufficient_quota"))
    assert reply.error is not None and reply.error.startswith("quota_exhausted")
    assert len(received) == 1


@pytest.mark.parametrize(
    "answer",
    [
        refusal(400, "too long", code="context_length_exceeded"),
        refusal(400, "This model's maximum context length is 2048 tokens. However, you requested 4096 tokens"),
    ],
    ids=["code", "vllm"],
)
def test_a_history_that_does_not_fit_is_named_as_such(answer: Answer) -> None:
    reply, _, _ = answered(answer)
    assert reply.error is not None and reply.error.partition(":")[0] == "context_full"


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (Answer('{"choices": [{"message": {"content": "hal'), "truncated_json"),
        (Answer('{"choices": [{"message": {"content": "x"}}], "n": NaN}'), "non_finite_number"),
        (Answer("I am sorry, try later."), "not_json"),
        (Answer("<html>gateway</html>", headers={"Content-Type": "text/html"}), "not_json (text/html"),
        (Answer(""), "not_json"),
        (Answer(b"\xff\xfe{}"), "bad_encoding"),
        (Answer(b"junk", headers={"Content-Encoding": "gzip"}), "bad_encoding"),
        (Answer("[" * 5000), "too_deep"),
        (Answer([1, 2]), "no_choices"),
        (Answer({"choices": []}), "no_choices"),
        (Answer({"error": {"message": "overloaded"}}), "no_choices: overloaded"),
        (Answer({"choices": ["x"]}), "no_message"),
        (Answer({"choices": [{"message": None}]}), "no_message"),
        (Answer(completion({"text": "x"})), "content_not_text"),
        (Answer(completion(7)), "content_not_text"),
        (Answer(completion("", tool_calls={"name": "x"})), "tool_calls_not_list"),
    ],
    ids=lambda value: value.partition(" ")[0].rstrip(":") if isinstance(value, str) else "answer",
)
def test_an_answer_that_is_no_completion_is_a_failure_with_a_reason(answer: Answer, detail: str) -> None:
    reply, _, received = answered(answer)
    assert reply.error is not None and reply.error.startswith(f"bad_reply: {detail}")
    assert len(received) == 1  # it was answered, and perhaps paid for


def test_a_right_body_counts_whatever_its_content_type_says() -> None:
    reply, _, _ = answered(Answer(completion("fine"), headers={"Content-Type": "text/plain"}))
    assert reply.content == "fine" and reply.error is None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Answer(hang=True), "timeout"),
        (Answer(completion("x" * 100), drip_s=0.1), "timeout"),
        (Answer(completion("hello"), cut=20), "connection_failed"),
    ],
    ids=["hang", "one_byte_at_a_time", "closed_in_the_middle"],
)
def test_a_connection_that_dies_or_never_ends(fault: Answer, reason: str) -> None:
    with ChatServer([fault, HELLO]) as server:
        reply, policy = ask(server, request(reply_timeout_s=0.4), attempts=1)
        assert reply.error is not None and reply.error.partition(":")[0] == reason
        assert policy.counts["retries"] == 0
    if reason == "connection_failed":
        assert answered(fault, HELLO)[0].content == "hello"  # asked again


def test_nobody_listens() -> None:
    with ChatServer([HELLO]) as server:
        pass
    reply, policy = ask(server, attempts=2)
    assert reply.error is not None and reply.error.startswith("connection_failed")
    assert policy.counts["retries"] == 1


def test_an_endless_answer_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajectory_platform.evaluation.policy_endpoint.MAX_REPLY_BYTES", 1000)
    reply, _, _ = answered(Answer(completion("x" * 5000)))
    assert reply.error is not None and reply.error.startswith("reply_too_large")


def test_a_history_that_cannot_be_shown_is_not_sent() -> None:
    with ChatServer([HELLO]) as server:
        reply, _ = ask(server, request(messages=[{"role": "user", "content": "<|im_end|>"}]))
        assert reply.error is not None and reply.error.startswith("control_token_in_text")
        assert server.received == []


def test_the_key_comes_from_the_named_variable_and_shows_up_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-" + "s3cret" * 60
    monkeypatch.setenv("SOME_KEY", key)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-other")
    caplog.set_level(logging.DEBUG)
    with ChatServer([refusal(401, f"Incorrect key {key}"), refusal(400, f"{'x' * 280} {key}"), HELLO]) as server:
        first, policy = ask(server, key_variable="SOME_KEY")
        second, _ = ask(server, key_variable="SOME_KEY")
        ask(server)
        with_key, _, without = server.received
    assert with_key.headers["authorization"] == f"Bearer {key}"
    assert first.error == "http_401: test_error Incorrect key [key]"
    for text in (str(second.error), policy.name, repr(policy), caplog.text):
        assert "s3cret" not in text
    assert "authorization" not in without.headers
    assert not any("other" in value for value in without.headers.values())


@pytest.mark.parametrize(
    "value",
    ["", "   ", "two\nlines", "a blank", "schl\u00fcssel"],
    ids=["empty", "blanks", "line_end", "blank", "letters"],
)
def test_a_missing_or_impossible_key_is_wrong_use(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(Abort, match="SOME_KEY") as raised:
        EndpointPolicy("http://127.0.0.1:1/v1", "m", key_variable="SOME_KEY")
    assert value.strip() == "" or value not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("https://api.example.com/openai/v1/", "https://api.example.com/openai/v1"),
        ("http://[::1]:80/v1", "http://[::1]:80/v1"),
    ],
)
def test_base_urls(text: str, url: str) -> None:
    assert endpoint_url(text)[0] == url


@pytest.mark.parametrize(
    "text",
    [
        *("ftp://host/v1", "host:8000", "http://", "http://user:pw@host/v1", "http://host/v1?key=pw"),
        *("http://host/v1#x", "http://ho st/v1", "http://host:99999/v1", "http://h\u00f6st/v1", "http://h\nost"),
    ],
    ids=["scheme", "no_scheme", "no_host", "password", "query", "fragment", "blank", "port", "letters", "line_end"],
)
def test_other_urls_are_wrong_use(text: str) -> None:
    with pytest.raises(Abort) as raised:
        endpoint_url(text)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(401, "bad key"), Abort),
        (refusal(404, "no such model"), Abort),
        (refusal(503, "busy", Retry_After="9"), RetryLater),
    ],
    ids=["key", "model", "busy"],
)
def test_an_outage_can_stop_the_run_instead_of_counting_as_failures(answer: Answer, error: type[Exception]) -> None:
    with pytest.raises(error) as raised, ChatServer([answer]) as server:
        ask(server, attempts=2, outage="stop")
    if isinstance(raised.value, RetryLater):
        assert raised.value.after_s == 9.0


def test_one_bad_reply_never_stops_the_run() -> None:
    assert answered(Answer("prose"), outage="stop")[0].error is not None


def test_concurrency_reaches_the_server() -> None:
    """16 attempts at concurrency 8: the server has 8 requests in flight, and never more."""
    final = completion("", calls=[("terminate", {"status": "success"})])
    with ChatServer([Answer(final, delay_s=0.02)], together=8) as server:
        done = drive(EndpointPolicy(server.url, "m"), [task(number) for number in range(16)], concurrency=8)
        assert server.most_in_flight == 8
        assert len(server.received) == 16
    assert {rollout.ending.reason for rollout in done.values()} == {"terminate"}


def test_a_rollout_over_http_goes_on_with_the_results_of_its_calls() -> None:
    def answer(asked: Received, _number: int) -> Answer:
        results = [message for message in asked.body["messages"] if message["role"] == "tool"]
        if not results:
            return Answer(completion("I look.", calls=[("find_product", {"q": "blue mug", "page": 1})]))
        first = json.loads(results[0]["content"])[0]["product_id"]
        if len(results) == 1:
            text = json.dumps([{"name": "recommend_product", "parameters": {"product_ids": first}}])
            return Answer(completion(f"<think>{first}</think><tool_call>{text}</tool_call>", usage=(5, 7)))
        return Answer(completion("", calls=[("terminate", {"status": "success"})]))

    with ChatServer(answer) as server:
        [rollout] = drive(EndpointPolicy(server.url, "m", price=Price(1.0, 1.0)), [task()]).values()
    assert rollout.ending.reason == "terminate"
    assert [call["name"] for step in rollout.environment.steps for call in step.calls] == [
        *("find_product", "recommend_product", "terminate")
    ]
    assert rollout.ending.cost_usd == pytest.approx((105 + 47 + 100) / 1e6)


def test_a_reply_nobody_waits_for_any_more_frees_the_server() -> None:
    with ChatServer([Answer(hang=True)]) as server:
        done = drive(EndpointPolicy(server.url, "m"), [task(1), task(2)], concurrency=2, reply_timeout_s=0.3)
        assert {rollout.ending.reason for rollout in done.values()} == {"timeout"}


def test_one_policy_serves_one_event_loop_after_another() -> None:
    with ChatServer([HELLO]) as server:
        policy = EndpointPolicy(server.url, "m")
        for _ in range(2):

            async def one() -> Reply:
                reply = await policy.reply(request())
                await policy.aclose()
                return reply

            assert asyncio.run(one()).content == "hello"
