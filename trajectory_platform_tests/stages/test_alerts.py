"""Alerts over real sockets: what arrives, how often, and what never does (secrets, markup, endless text)."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from email import message_from_string
from email.policy import default
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.settings import Settings
from trajectory_platform.stages.alert_text import MAX_TEXT, Alert, payload
from trajectory_platform.stages.alerts import TRIES, Memory, NotSent, deliver, targets
from trajectory_platform_tests.defs.ticks import utc
from trajectory_platform_tests.stages.mail_server import mail_server

NOW = utc("2026-05-04T04:00")
HOUR = timedelta(hours=1)
NOTHING = Memory({}, {}, [])


def alert(key: str = "run_failed:ingest_and_curate", text: str = "it broke", **details: str) -> Alert:
    return Alert("run_failed", key, "a run failed", text, NOW.isoformat(), {"run": "r1", **details})


class Hook:
    """A webhook that answers as it is told, first answers first, and keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.paths.append(self.path)
                hook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                code = hook.answers.pop(0) if hook.answers else 200
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/very-secret"


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def webhook(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOOK_URL", hook.url)
    return Settings(alert_webhook_env="HOOK_URL")


def _deliver(settings: Settings, alerts: list[Alert], memory: Memory = NOTHING, at: Any = NOW) -> tuple[Memory, str]:
    memory, words = deliver(alerts, memory, at, hooks=targets(settings), cooldown=HOUR, sleep=lambda _: None)
    return Memory.read(json.loads(json.dumps(memory.to_dict()))), "\n".join(words)


def test_what_a_webhook_gets(hook: Hook, webhook: Settings) -> None:
    _, words = _deliver(webhook, [alert(day="2026-05-03")])
    [body] = hook.bodies
    assert words == "run_failed:ingest_and_curate: sent"
    assert body["kind"] == "run_failed" and body["at"] == NOW.isoformat()
    assert body["text"] == "a run failed\nit broke\nrun: r1\nday: 2026-05-03"


def test_equal_alerts_are_one_within_the_cooldown_and_counted(hook: Hook, webhook: Settings) -> None:
    memory, _ = _deliver(webhook, [alert(), alert(), alert("other")])
    assert len(hook.bodies) == 2
    memory, words = _deliver(webhook, [alert()], memory, NOW + 0.9 * HOUR)
    assert len(hook.bodies) == 2 and "not again within" in words
    _deliver(webhook, [alert()], memory, NOW + HOUR)
    assert hook.bodies[-1]["details"]["equal ones held back"] == "2"
    assert len(hook.bodies) == 3


def test_nothing_is_called_told_that_was_not_sent() -> None:
    gone = Settings(alert_webhook_env="HOOK_THAT_IS_NOT_SET")
    memory, words = _deliver(gone, [alert(), alert(), alert()])
    assert "told" not in words and "HOOK_THAT_IS_NOT_SET is not set" in words
    assert words.endswith("run_failed:ingest_and_curate: 2 more, equal to one that is not sent yet")
    memory, words = _deliver(gone, [alert()], memory, NOW + 2 * HOUR)
    assert "told" not in words and len(memory.waiting) == 1, "one waits, however often it comes"


def test_parts_of_a_storm_wait_for_themselves_and_are_told_together(hook: Hook, webhook: Settings) -> None:
    hook.answers = [500] * TRIES
    parts = [
        alert(f"run_failed:raw_traces:{day}:x")._replace(title=f"run failed for {day}", day=day, group="run_failed")
        for day in ("2026-05-03", "2026-05-04")
    ]
    memory, words = _deliver(webhook, parts)
    assert len(memory.waiting) == 2 and memory.sent == {}
    memory, words = _deliver(webhook, parts[:1], memory, NOW + HOUR)
    assert "run_failed (2 failures): sent" in words and hook.bodies[-1]["title"] == (
        "run failed for 2026-05-03 to 2026-05-04"
    )
    assert set(memory.sent) == {part.key for part in parts} and memory.waiting == []


def test_retries_are_bounded_and_what_could_not_be_sent_is_sent_later(hook: Hook, webhook: Settings) -> None:
    hook.answers = [500, 503]
    _, words = _deliver(webhook, [alert()])
    assert words.endswith("sent") and len(hook.bodies) == 3
    hook.answers = [500] * TRIES
    memory, words = _deliver(webhook, [alert("second")])
    assert "not sent after 3 tries (HTTP 500)" in words and len(memory.waiting) == 1
    memory, _ = _deliver(webhook, [], memory)
    assert hook.bodies[-1]["key"] == "second" and memory.waiting == []


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://127.0.0.1:1/hooks/very-secret", "ConnectionRefusedError"),
        ("file:///etc/very-secret", "no http"),
        ("http://127.0.0.1:99999/very-secret", "not sent after"),
        ("http://very secret/", "not sent after"),
        ("", "HOOK_URL is not set"),
    ],
    ids=["refused", "no_http", "no_port", "blank_in_it", "unset"],
)
def test_no_message_names_the_address(url: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_URL", url)
    memory, words = _deliver(Settings(alert_webhook_env="HOOK_URL"), [alert()])
    assert word in words and "secret" not in words and "secret" not in json.dumps(memory.to_dict())


def test_a_redirect_is_not_followed(hook: Hook, webhook: Settings) -> None:
    hook.answers = [302] * TRIES
    _, words = _deliver(webhook, [alert()])
    assert "HTTP 302" in words and set(hook.paths) == {"/hooks/very-secret"}


def test_hostile_text_is_shown_cut_and_without_markup() -> None:
    hostile = "<!channel> <http://evil|click> @here \x1b[31m\u202e" + "x" * 100_000
    body = payload(alert(text=hostile, **{f"k{i}" * 50: hostile for i in range(100)}))
    assert not {"<", "@h", "\x1b", "\u202e"} & {
        body["text"][i : i + n] for n in (1, 2) for i in range(len(body["text"]))
    }
    assert "\\x1b[31m\\u202e" in body["text"] and len(json.dumps(body)) < 8 * MAX_TEXT
    assert body["text"].count("x" * 100) < 50


def _mail(port: int, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "alert_mail_from": "platform@example.org",
        "alert_mail_to": ("a@example.org", "b@example.org"),
    }
    return Settings(alert_smtp_host="127.0.0.1", alert_smtp_port=port, **(values | changes))


def test_a_mail_goes_over_starttls_with_the_login_of_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_USER", "platform")
    monkeypatch.setenv("MAIL_PASSWORD", "right")
    named = {"alert_smtp_user_env": "MAIL_USER", "alert_smtp_password_env": "MAIL_PASSWORD"}
    with mail_server(tmp_path, refuses=1) as server:
        untrusted, words = _deliver(_mail(server.port, **named), [alert()])
        assert "SSLCertVerificationError" in words and server.logins == [] and len(untrusted.waiting) == 1
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        _, words = _deliver(_mail(server.port, **named), [alert(text="line one\n.\n\x1b]0;title\x07 <b>")])
        assert words.endswith("sent") and server.logins[-1] == ("platform", "right", True)
        monkeypatch.setenv("MAIL_PASSWORD", "wrong-secret")
        _, refused = _deliver(_mail(server.port, **named), [alert()])
        assert "SMTPAuthenticationError 535" in refused and "secret" not in refused
    [text] = server.mails
    mail = message_from_string(text, policy=default)
    assert mail["Subject"] == "[trajectory-platform] a run failed" and mail["To"] == "a@example.org, b@example.org"
    body = mail.get_content()
    assert mail.get_content_type() == "text/plain" and "\\x1b]0;title\\x07 <b>" in body and "run: r1" in body


def test_a_password_never_goes_without_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "right")
    monkeypatch.setenv("MAIL_USER", "platform")
    with mail_server(tmp_path, offers_tls=False) as server:
        _, words = _deliver(_mail(server.port), [alert()])
        assert words.endswith("sent"), "a relay on this machine, without a login"
        secret = {"alert_smtp_user_env": "MAIL_USER", "alert_smtp_password_env": "MAIL_PASSWORD"}
        _, words = _deliver(_mail(server.port, **secret), [alert()])
        assert "no STARTTLS" in words and server.logins == []


def test_both_hooks_are_tried_and_one_that_worked_is_enough(hook: Hook, webhook: Settings) -> None:
    both = Settings(
        alert_webhook_env="HOOK_URL", alert_smtp_host="127.0.0.1", alert_smtp_port=1, alert_mail_to=("a@example.org",)
    )
    memory, words = _deliver(both, [alert()])
    assert "mail: not sent after 3 tries (ConnectionRefusedError)" in words and len(hook.bodies) == 1
    assert memory.waiting == [], "somebody knows: not sent again"
    assert targets(Settings()) == {}


def test_a_header_cannot_be_injected(tmp_path: Path) -> None:
    with mail_server(tmp_path, offers_tls=False) as server:
        evil = alert()._replace(title="x\r\nBcc: evil@example.org\r\n\r\nbody")
        _deliver(_mail(server.port), [evil])
    [text] = server.mails
    mail = message_from_string(text, policy=default)
    assert mail["Bcc"] is None and "\\r" in mail["Subject"]


def test_a_memory_of_another_shape_is_empty_and_a_full_one_stays_small() -> None:
    assert Memory.read({"sent": [], "held": 3, "waiting": "x"}) == NOTHING

    def refused(_: Alert) -> None:
        raise NotSent("down")

    many = [alert(f"key {number}") for number in range(1000)]
    memory, _ = deliver(many, NOTHING, NOW, hooks={"x": refused}, cooldown=HOUR, sleep=lambda _: None)
    assert len(memory.sent) <= 200 and len(memory.waiting) <= 200


def test_a_memory_of_a_wrong_shape_inside_is_dropped_and_alerts_go_on(hook: Hook, webhook: Settings) -> None:
    odd = {"sent": {"a": 1}, "held": {"a": "x", "b": 2}, "waiting": [{"kind": 1}, {**alert()._asdict(), "text": 5}, 7]}
    memory, words = _deliver(webhook, [alert()], Memory.read(odd))
    assert len(hook.bodies) == 1 and "sent" in words
    assert memory.waiting == [] and json.dumps(memory.to_dict())


def test_a_hook_that_is_down_does_not_hold_up_the_others_or_the_tick() -> None:
    now = [0.0]
    tried: list[str] = []
    told: list[str] = []

    def hangs(one: Alert) -> None:
        tried.append(one.key)
        now[0] += 10.0
        raise NotSent("no answer")

    many = [alert(f"key {number}") for number in range(20)]

    def call(memory: Memory, alerts: list[Alert], hooks: dict[str, Any]) -> tuple[Memory, list[str]]:
        return deliver(alerts, memory, NOW, hooks=hooks, cooldown=HOUR, sleep=lambda _: None, timer=lambda: now[0])

    memory, _ = call(NOTHING, many, {"bad": hangs, "good": lambda one: told.append(one.key)})
    assert now[0] <= 40 and set(tried) == {"key 0"}
    memory, _ = call(memory, many, {"bad": hangs, "good": lambda one: told.append(one.key)})
    memory, words = call(memory, many, {"good": lambda one: told.append(one.key)})
    assert sorted(told) == sorted(one.key for one in many), "each once, although every call had one that failed"
    now[0], tried[:] = 0.0, []
    memory, words = call(NOTHING, many, {"bad": hangs})
    assert now[0] <= 40 and set(tried) == {"key 0"}
    assert len(memory.waiting) == 20 and "not tried again" in words[-1]


def test_a_server_that_trickles_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajectory_platform.stages.alerts.TIMEOUT_S", 0.6)
    server = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = server.accept()
                threading.Thread(target=drip, args=(line,), daemon=True).start()

    def drip(line: socket.socket) -> None:
        with contextlib.suppress(OSError), line:
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not ended.wait(0.1):
                line.sendall(b"x")

    threading.Thread(target=trickle, daemon=True).start()
    monkeypatch.setenv("HOOK_URL", f"http://127.0.0.1:{server.getsockname()[1]}/secret")
    try:
        began = time.monotonic()
        memory, words = _deliver(Settings(alert_webhook_env="HOOK_URL"), [alert()])
        assert time.monotonic() - began < 10
    finally:
        ended.set()
        server.close()
    assert len(memory.waiting) == 1
    assert "no answer within" in words and "secret" not in words
