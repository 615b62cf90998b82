"""Alerts to a webhook or by e-mail: what is said, when it is said again, and how it is sent.

An alert never stops what it reports: whatever goes wrong with sending is a word in the result. The URL and the mail
password come from variables that the settings name, and appear in no message.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.identity import parse_utc
from trajectory_platform.settings import Settings
from trajectory_platform.stages.alert_text import HELD_BACK, MAX_TEXT, Alert, as_one, bundles, cut, payload

if TYPE_CHECKING:
    from email.message import EmailMessage

TRIES = 3
TIMEOUT_S = 10.0  # of one try, however steadily an answer trickles
CALL_S = 25.0  # a tick of a sensor is given a minute in all: what was not sent by then waits for the next one
MAX_TOLD = 500  # keys remembered: of a backfill of a year in which every day failed, all
MAX_KEPT = 200  # alerts that wait to be sent
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Memory(NamedTuple):
    """What was sent when, what was held back, and what still waits to be sent; JSON in the cursor of a sensor."""

    sent: dict[str, str]
    held: dict[str, int]
    waiting: list[dict[str, Any]]

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Memory:
        """From what ``to_dict`` made; anything else is empty."""
        sent, held, waiting = (value.get(name) for name in cls._fields)
        return cls(
            {str(key): str(at) for key, at in sent.items()} if isinstance(sent, dict) else {},
            {str(key): count for key, count in held.items() if type(count) is int} if isinstance(held, dict) else {},
            [one for one in waiting if isinstance(one, dict)] if isinstance(waiting, list) else [],
        )

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


Send = Callable[[Alert], None]
"""Sends one alert or raises ``NotSent``."""


class NotSent(Exception):
    """Why an alert could not be sent; says nothing of secrets."""


def targets(settings: Settings) -> dict[str, Send]:
    """The hooks that the settings configure: ``webhook``, ``mail``, both or none."""
    found: dict[str, Send] = {}
    if settings.alert_webhook_env:
        found["webhook"] = lambda alert: post(_secret(settings.alert_webhook_env), payload(alert))
    if settings.alert_smtp_host and settings.alert_mail_to:
        found["mail"] = lambda alert: mail(settings, message(settings, alert))
    return found


def hooks_looked_at(settings: Settings) -> dict[str, str | None]:
    """What is wrong with each hook that the settings configure or half configure, None for nothing; asks no server.

    Neither address nor secret is in the words.
    """
    found: dict[str, str | None] = {}
    if settings.alert_webhook_env:
        found["webhook"] = _fault(lambda: _web_address(_secret(settings.alert_webhook_env)))
    if settings.alert_smtp_host or settings.alert_mail_to:
        found["mail"] = _fault(lambda: _mail_is_whole(settings))
    return found


def _fault(look: Callable[[], object]) -> str | None:
    try:
        look()
    except NotSent as error:
        return str(error)
    return None


def _mail_is_whole(settings: Settings) -> None:
    """Raises NotSent for what lacks to send a mail."""
    if not settings.alert_smtp_host or not settings.alert_mail_to:
        there, lacks = ("alert_smtp_host", "alert_mail_to")[:: 1 if settings.alert_smtp_host else -1]
        raise NotSent(f"{there} without {lacks}: nothing is sent by mail")
    if any("@" not in address for address in settings.alert_mail_to):
        raise NotSent("an entry of alert_mail_to is no mail address")
    if (settings.alert_smtp_user_env is None) != (settings.alert_smtp_password_env is None):
        raise NotSent("alert_smtp_user_env and alert_smtp_password_env go together")
    for name in (settings.alert_smtp_user_env, settings.alert_smtp_password_env):
        _secret(name)


def deliver(
    alerts: Sequence[Alert],
    memory: Memory,
    now: datetime,
    *,
    hooks: Mapping[str, Send],
    cooldown: timedelta,
    sleep: Callable[[float], None] = time.sleep,
    timer: Callable[[], float] = time.monotonic,
) -> tuple[Memory, list[str]]:
    """Send what is new, once per key and cooldown; what cannot be sent waits for the next call.

    What failed together is told together: each counts as told, and each waits for itself where it was not sent. A hook
    that failed is left alone for the rest of the call, and after ``CALL_S`` seconds nothing more is begun: one that
    hangs must not end the tick, whose memory of what was sent would be lost with it.

    Returns:
        The memory for the next call, and what happened in words.
    """
    sent, held = dict(memory.sent), dict(memory.held)
    ready = [alert for one in memory.waiting if (alert := _restored(one)) is not None]
    equal: dict[str, int] = {}
    coming = {alert.key for alert in ready}
    for alert in alerts:
        last = parse_utc(sent.get(alert.key))
        if alert.key in coming or (last is not None and timedelta(0) <= now - last < cooldown):
            held[alert.key] = held.get(alert.key, 0) + 1
            equal[alert.key] = equal.get(alert.key, 0) + 1
            continue
        before = held.pop(alert.key, 0)
        if before:
            alert = alert._replace(details={**alert.details, HELD_BACK: str(before)})
        coming.add(alert.key)
        ready.append(alert)
    words: list[str] = []
    left: list[Alert] = []
    ends = timer() + CALL_S
    down: set[str] = set()
    for parts in bundles(ready):
        alert = as_one(parts)
        failed = _to_all(hooks, alert, down, sleep, lambda: timer() >= ends)
        several = f" ({len(parts)} failures)" if len(parts) > 1 else ""
        words.append(f"{alert.key}{several}: " + ("; ".join(failed) if failed else "sent"))
        if failed and len(failed) == len(hooks):  # reached nobody; one that reached somebody is not sent twice
            left += [part._replace(text=part.text[: 4 * MAX_TEXT]) for part in parts]
        else:
            sent |= dict.fromkeys((part.key for part in parts), now.isoformat())
    if len(left) > MAX_KEPT:
        words.append(f"{len(left) - MAX_KEPT} of those not sent are given up: {MAX_KEPT} wait")
    waiting = left[-MAX_KEPT:]
    names = {alert.key for alert in waiting}
    words += [_held_back(key, equal[key], None if key in names else sent.get(key), cooldown) for key in equal]
    told = dict(sorted(sent.items(), key=lambda item: item[1])[-MAX_TOLD:])
    counts = {key: held[key] for key in held if key in told or key in names}
    return Memory(told, counts, [one._asdict() for one in waiting]), words


def _to_all(
    hooks: Mapping[str, Send], alert: Alert, down: set[str], sleep: Callable[[float], None], late: Callable[[], bool]
) -> list[str]:
    """Send to every hook that is not ``down``; what went wrong, and ``down`` grows by the hooks it went wrong with."""
    failed: list[str] = []
    for name, send in hooks.items():
        if name in down or late():
            failed.append(f"{name}: not tried again in this call")
        elif (why := _tried(send, alert, sleep, late)) is not None:
            failed.append(f"{name}: {why}")
            down.add(name)
    return failed


def _held_back(key: str, count: int, told: str | None, cooldown: timedelta) -> str:
    at = parse_utc(told)
    if at is None:
        return f"{key}: {count} more, equal to one that is not sent yet"
    return f"{key}: {count} equal, told {at:%Y-%m-%d %H:%M}, not again within {cooldown}"


def _restored(value: Mapping[str, Any]) -> Alert | None:
    try:
        alert = Alert(**value)
    except TypeError:
        return None
    plain = isinstance(alert.details, dict) and all(
        isinstance(text, str) for text in alert if text is not alert.details
    )
    return alert if plain and all(isinstance(text, str) for text in alert.details.values()) else None


def _tried(
    send: Send, alert: Alert, sleep: Callable[[float], None], late: Callable[[], bool] = lambda: False
) -> str | None:
    """Send with bounded retries; why it failed, or None."""
    why = ""
    tries = 0
    for number in range(TRIES):
        tries += 1
        try:
            _in_time(send, alert)
        except NotSent as error:
            why = str(error)
        else:
            return None
        if number + 1 < TRIES:
            if late():
                break
            sleep(2.0**number)
    return f"not sent after {tries} {'try' if tries == 1 else 'tries'} ({why})"


def _in_time(send: Send, alert: Alert) -> None:
    """``send`` within ``TIMEOUT_S``. Sockets know a limit for each read only, so it is given a thread to be left in.

    Raises:
        NotSent: also when it takes too long; then it may have been sent all the same.
    """
    outcome: list[str] = []

    def run() -> None:
        try:
            send(alert)
        except NotSent as error:
            outcome.append(str(error))
        else:
            outcome.append("")

    thread = threading.Thread(target=run, name="alert", daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    if outcome and not outcome[0]:
        return
    if thread.is_alive():
        raise NotSent(f"no answer within {TIMEOUT_S:g} s")
    raise NotSent(outcome[0] if outcome else "the hook broke, its traceback is in the log")


def post(url: str, body: Mapping[str, Any]) -> None:
    """POST JSON to an http(s) URL; redirects are not followed.

    Raises:
        NotSent: no connection, or an answer other than 2xx; the URL is not in the text.
    """
    import json
    from http.client import HTTPException
    from urllib import error, request

    _web_address(url)

    class Stay(request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    asked = request.Request(
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with request.build_opener(Stay).open(asked, timeout=TIMEOUT_S) as answer:
            answer.read(1 << 16)
    except error.HTTPError as refused:
        raise NotSent(f"HTTP {refused.code}") from None
    except (OSError, ValueError, HTTPException) as failed:
        reason = getattr(failed, "reason", failed)
        raise NotSent(type(reason).__name__) from None


def message(settings: Settings, alert: Alert) -> EmailMessage:
    """The same as a mail: plain text only."""
    from email.message import EmailMessage

    body = payload(alert)
    mail_of = EmailMessage()
    mail_of["Subject"] = "[trajectory-platform] " + body["title"].replace("\n", " ")
    mail_of["From"] = settings.alert_mail_from or "trajectory-platform@localhost"
    mail_of["To"] = ", ".join(settings.alert_mail_to)
    listed = "".join(f"\n{key}: {value}" for key, value in body["details"].items())
    mail_of.set_content(f"{cut(alert.text, MAX_TEXT)}\n{listed}\n\nat {alert.at}, kind {alert.kind}\n")
    return mail_of


def mail(settings: Settings, text: EmailMessage) -> None:
    """Send by SMTP with STARTTLS; without TLS only to this machine, and never a password.

    Raises:
        NotSent: with the step that failed, without user or password.
    """
    import smtplib
    import ssl

    host = settings.alert_smtp_host or ""
    user, password = (_secret(name) for name in (settings.alert_smtp_user_env, settings.alert_smtp_password_env))
    try:
        with smtplib.SMTP(host, settings.alert_smtp_port, timeout=TIMEOUT_S) as server:
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
                server.ehlo()
            elif host not in _LOOPBACK or password:
                raise NotSent("the mail server offers no STARTTLS")
            if user:
                server.login(user, password)
            server.send_message(text)
    except smtplib.SMTPResponseException as refused:
        raise NotSent(f"{type(refused).__name__} {refused.smtp_code}") from None
    except (smtplib.SMTPException, OSError, ValueError) as failed:
        raise NotSent(type(failed).__name__) from None


def _web_address(url: str) -> None:
    """Raises NotSent for what is no address of a webhook; the words do not repeat it."""
    from urllib import parse

    try:
        parts = parse.urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        whole = False
    if not whole or any(char.isspace() or not char.isprintable() for char in url):
        raise NotSent("the address is no http(s) URL")


def _secret(name: str | None) -> str:
    """What a named variable holds; the name may be told, what it holds never.

    Raises:
        NotSent: the variable is not set, or the name is none.
    """
    if name is None:
        return ""
    if not name.isidentifier():  # the secret itself, where its name belongs
        raise NotSent("a setting that ends in _env holds no name of a variable; the variable holds the value")
    value = os.environ.get(name, "")
    if not value:
        raise NotSent(f"the variable {name} is not set")
    return value
