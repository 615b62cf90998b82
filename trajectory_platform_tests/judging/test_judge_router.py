"""One call through litellm: one request, the right kind of failure, and no key anywhere it should not be."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import traceback
from functools import partial
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.judging.judge_http import MAX_BODY_BYTES, retry_after
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_router import FAILURES, CallFailure, JudgeRouter, RawReply
from trajectory_platform_tests.judging.judge_server import Act, Asked, JudgeServer, fault, model_of, serving, verdict

KEY = "sk-MARKER-0123456789-DO-NOT-LEAK"
MESSAGES = [{"role": "system", "content": "grade"}, {"role": "user", "content": "this"}]


def answering(act: Act, _: Asked) -> Act:
    return act


def ask(server: JudgeServer, **options: Any) -> RawReply | CallFailure:
    model = model_of(server, **options)
    router = JudgeRouter(JudgeConfig(models=(model,)))

    async def once() -> RawReply:
        try:
            return await router.ask(model, MESSAGES)
        finally:
            await router.close()

    try:
        return asyncio.run(once())
    except CallFailure as failure:
        return failure


FAULTS = {
    "429": (fault(429, "7"), "rate_limited", 7.0, False),
    "429-no-time": (fault(429), "rate_limited", None, False),
    "429-nonsense": (fault(429, "soon"), "rate_limited", None, False),
    "500": (fault(500), "server_error", None, False),
    "503": (fault(503, "2"), "server_error", 2.0, False),
    "408": (fault(408), "server_error", None, False),
    "400": (fault(400), "request_refused", None, False),
    "413": (fault(413), "request_refused", None, False),
    "422": (fault(422), "request_refused", None, False),
    "401": (fault(401), "unauthorised", None, False),
    "402": (fault(402), "no_credit", None, False),
    "403": (fault(403), "forbidden", None, False),
    "404": (fault(404), "no_such_model", None, False),
    "redirect": (
        Act(status=302, headers=(("Location", "http://127.0.0.1:9/"),), raw=b""),
        "no_such_model",
        None,
        False,
    ),
    "filter-400": (
        fault(400, body={"error": {"message": "content management policy", "code": "content_filter"}}),
        "filtered",
        None,
        False,
    ),
    "cut-body": (verdict(0.7, cut=40), "broken_body", None, True),
    "cut-json": (Act(raw=b'{"choices":[{"message":{"content":"a'), "broken_body", None, True),
    "prose-body": (Act(raw=b"<html>soon back</html>", content_type="text/html"), "broken_body", None, True),
    "empty-body": (Act(raw=b""), "broken_body", None, True),
    "null-body": (Act(raw=b"null"), "broken_body", None, True),
    "no-choices": (
        Act(raw=b'{"id":"x","object":"chat.completion","created":0,"model":"m","choices":[]}'),
        "broken_body",
        None,
        True,
    ),
    "too-large": (Act(raw=b'{"a":"' + b"x" * (MAX_BODY_BYTES + 1) + b'"}'), "broken_body", None, True),
    "compressed": (Act(raw=b"\x1f\x8b00", headers=(("Content-Encoding", "gzip"),)), "broken_body", None, True),
    "hang": (Act(hang=True), "timeout", None, True),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_request_and_one_kind(name: str) -> None:
    act, kind, wait, billed = FAULTS[name]
    with serving(lambda _: act) as server:
        got = ask(server, timeout_s=0.7 if name == "hang" else 20.0)
        assert isinstance(got, CallFailure), got
        assert (got.kind, got.retry_after, got.maybe_billed) == (kind, wait, billed)
        assert got.kind in FAILURES and len(server.log) == 1


def test_nothing_listens() -> None:
    with serving(lambda _: verdict()) as server:
        pass
    got = ask(server)
    assert isinstance(got, CallFailure) and (got.kind, got.maybe_billed) == ("connection_error", False)


def test_replies_and_their_counts() -> None:
    with serving(lambda _: verdict(0.7)) as server:
        got = ask(server)
        assert isinstance(got, RawReply) and got.finish_reason == "stop"
        bill = server.bills[0]
        assert (got.prompt_tokens, got.completion_tokens) == (bill.prompt_tokens, bill.completion_tokens)
        body = server.log[0].body
        assert body["messages"] == MESSAGES and body["temperature"] == 0.0 and body["max_tokens"] == 600
        assert body["response_format"]["json_schema"]["strict"] is True and not body.get("stream")
        server.script = lambda _: verdict(0.7, usage=False)
        assert ask(server)[2:] == (None, None)  # type: ignore[index]
        server.script = lambda _: verdict(0.7, content_type="text/plain")
        assert isinstance(ask(server), RawReply)
        server.script = lambda _: Act(None)
        assert ask(server)[0] is None  # type: ignore[index]


@pytest.mark.parametrize(("choice", "sent"), [("json_object", {"type": "json_object"}), ("none", None)])
def test_structured_output_can_be_less_or_off(choice: str, sent: object) -> None:
    with serving(lambda _: verdict()) as server:
        ask(server, structured_output=choice)
        assert server.log[0].body.get("response_format") == sent


def test_a_time_to_wait_is_read_against_the_servers_clock() -> None:
    date = "Wed, 21 Oct 2026 07:28:00 GMT"
    assert retry_after("Wed, 21 Oct 2026 07:28:05 GMT", date) == 5.0
    assert retry_after("Wed, 21 Oct 2026 07:27:00 GMT", date) == 0.0
    assert retry_after("Wed, 21 Oct 2026 07:28:05 GMT", None) is None
    for bad in ("nan", "inf", "-1", "", "soon"):
        assert retry_after(bad, date) is None


def test_runs_in_one_process_share_nothing_of_a_closed_loop() -> None:
    """litellm keeps its clients for an hour; each run has an event loop of its own."""
    with serving(lambda _: verdict()) as server:
        assert all(isinstance(ask(server), RawReply) for _ in range(4))
        assert not server._open or len(server._open) <= 1  # closed with their loop


def test_no_task_is_left_but_litellms_own_logger() -> None:
    with serving(lambda _: verdict()) as server:
        model = model_of(server)
        router = JudgeRouter(JudgeConfig(models=(model,)))

        async def many() -> set[str]:
            await asyncio.gather(*(router.ask(model, MESSAGES) for _ in range(8)))
            await router.close()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            return {task.get_coro().__qualname__ for task in left}  # type: ignore[union-attr]

        assert asyncio.run(many()) <= {"LoggingWorker._worker_loop"}


def test_a_key_never_comes_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """An endpoint that repeats the request's headers in its reply, in an error, and in a broken body."""
    monkeypatch.setenv("JUDGE_TEST_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    seen = []
    with serving(lambda _: verdict()) as server:
        for act in (
            Act(f'{{"reasoning_quality": 0.7, "explanation": "Bearer {KEY}"}}'),
            fault(401, body={"error": {"message": f"Incorrect API key provided: {KEY}"}}),
            fault(500, body={"error": {"message": f"authorization: Bearer {KEY}"}}),
            Act(raw=f"<pre>{KEY}</pre>".encode(), content_type="text/html"),
        ):
            server.script = partial(answering, act)
            got = ask(server, api_key_env="JUDGE_TEST_KEY")
            seen.append(repr(got))
            if isinstance(got, CallFailure):
                seen += [got.detail, "".join(traceback.format_exception(got))]
        assert server.log[0].headers["authorization"] == f"Bearer {KEY}"
        model = model_of(server, api_key_env="JUDGE_TEST_KEY")
        config = JudgeConfig(models=(model,))
        seen += [repr(config), config.model_dump_json(), str(model.parameters()), repr(JudgeRouter(config))]
    printed = capfd.readouterr()
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert KEY not in "\n".join([*seen, printed.out, printed.err, logged])


def test_a_missing_key_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_TEST_KEY", raising=False)
    model = JudgeModel(name="m", model="openai/m", free=True, api_key_env="JUDGE_TEST_KEY")
    with pytest.raises(Abort) as caught:
        JudgeRouter(JudgeConfig(models=(model,)))
    assert str(caught.value) == "judge model 'm': the environment variable JUDGE_TEST_KEY is not set"


def test_no_key_of_another_provider_is_sent_to_an_own_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(lambda _: verdict()) as server:
        ask(server)
        assert KEY not in str(server.log[0].headers)


def test_litellm_is_imported_by_nobody_else_and_reaches_no_network() -> None:
    """The judge's modules load without it; its own import opens no socket to anywhere."""
    script = """
import socket, sys
def refuse(*a, **k): raise AssertionError("network at import")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
import trajectory_platform.judging.judge_run, trajectory_platform.stages.llm_judging
assert not {"litellm", "openai", "httpx"} & set(sys.modules), "heavy import"
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_router import JudgeRouter
JudgeRouter(JudgeConfig(models=(JudgeModel(name="m", model="openai/m", api_base="http://127.0.0.1:9/v1", free=True),)))
assert "litellm" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
