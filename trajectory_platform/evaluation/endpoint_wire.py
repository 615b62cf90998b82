"""What goes to an OpenAI-compatible endpoint and what is accepted back; no input or output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.evaluation.environment import CONTEXT_FULL, Reply
from trajectory_platform.traces.rendering import chat_messages

_AGAIN = frozenset({408, 425, 429})
_NO_ROOM = ("context_length_exceeded", "maximum context length", "context window", "exceeds the context")


class EndpointFailure(Exception):
    """No usable answer.

    Args:
        reason: snake_case.
        detail: text for people; may hold third-party text.
        again: whether the same request may succeed later.
        after_s: seconds the server asked to wait.
    """

    def __init__(self, reason: str, detail: str = "", *, again: bool = False, after_s: float | None = None) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail, self.again, self.after_s = reason, detail, again, after_s


def api_messages(
    messages: Sequence[Mapping[str, Any]], *, max_result_chars: int | None, reasoning: bool
) -> list[dict[str, Any]]:
    """Canonical messages in the API's form: the texts a chat template would get, call ids, arguments as JSON text.

    Raises:
        RejectRow: as ``traces.rendering.chat_messages``.
    """
    sent: list[dict[str, Any]] = []
    shown = chat_messages(messages, max_result_chars=max_result_chars).messages
    for source, message in zip(messages, shown, strict=True):
        made: dict[str, Any] = {"role": message["role"], "content": message["content"]}
        if message["role"] == "tool":
            made["tool_call_id"] = source["tool_call_id"]
        if message["role"] == "assistant":
            if reasoning and message["reasoning_content"]:
                made["reasoning_content"] = message["reasoning_content"]
            if source.get("tool_calls"):
                made["content"] = made["content"] or None
                made["tool_calls"] = [_call(call) for call in source["tool_calls"]]
        sent.append(made)
    return sent


def read_answer(status: int, headers: Mapping[str, str], data: bytes) -> Reply:
    """The reply in a complete HTTP answer, without cost and seconds.

    Args:
        headers: with lower-case or case-insensitive names.

    Raises:
        EndpointFailure: anything that is no chat completion.
    """
    if status != 200:
        raise _refusal(status, headers, data)
    try:
        value, repairs = jsontext.parse(data)
    except RejectRow as error:
        kind = headers.get("content-type", "").partition(";")[0].strip() or "no content type"
        raise EndpointFailure("bad_reply", f"{error.reason} ({kind}, {len(data)} bytes)") from error
    if jsontext.NON_FINITE in repairs:
        raise EndpointFailure("bad_reply", jsontext.NON_FINITE)
    return read_completion(value)


def read_completion(value: Any) -> Reply:
    """The reply in a chat completion, without cost and seconds.

    Raises:
        EndpointFailure: ``bad_reply``.
    """
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list) or not choices:
        raise EndpointFailure("bad_reply", "no_choices" + _message_of(value, ": "))
    first = choices[0]
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        raise EndpointFailure("bad_reply", "no_message")
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise EndpointFailure("bad_reply", "tool_calls_not_list")
    if not calls and isinstance(message.get("function_call"), dict):  # the API's form before tool_calls
        calls = [{"type": "function", "function": message["function_call"]}]
    thoughts = (message.get(key) for key in ("reasoning_content", "reasoning"))
    usage = value.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    finish = first.get("finish_reason")
    return Reply(
        content=_text(message.get("content")),
        tool_calls=calls or None,
        reasoning_content=next((thought for thought in thoughts if isinstance(thought, str) and thought), None),
        finish_reason=finish if isinstance(finish, str) and finish else "unknown",
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _text(content: Any) -> str | None:
    """Content as one text; parts of text are joined (case A26)."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        words = [text for text in texts if isinstance(text, str)]
        if len(words) == len(texts):
            return "".join(words)
    raise EndpointFailure("bad_reply", "content_not_text")


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _refusal(status: int, headers: Mapping[str, str], data: bytes) -> EndpointFailure:
    """What a status other than 200 means."""
    try:
        value = jsontext.parse(data).value
    except RejectRow:
        value = data.decode("utf-8", "replace")
    said = _message_of(value)
    if status == 429 and "insufficient_quota" in said:
        return EndpointFailure("quota_exhausted", said)
    if status in (400, 413, 422) and no_room(said):
        return EndpointFailure(CONTEXT_FULL, said)
    if status in _AGAIN or status >= 500:
        return EndpointFailure(f"http_{status}", said, again=True, after_s=retry_after(headers))
    return EndpointFailure(f"http_{status}", said)


def no_room(said: str) -> bool:
    """Whether an endpoint's words say that the history does not fit its model."""
    return any(words in said.lower() for words in _NO_ROOM)


def _message_of(value: Any, before: str = "") -> str:
    """Type, code and message of an error object, or the text itself; not cut, so that a key in it can be found."""
    error = value.get("error", value) if isinstance(value, dict) else value
    if isinstance(error, dict):
        error = " ".join(str(error[key]) for key in ("type", "code", "message", "detail") if error.get(key))
    text = " ".join(error.split()) if isinstance(error, str) else ""
    return before + text if text else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by ``Retry-After-Ms`` or ``Retry-After`` (seconds, or a date relative to the answer's own
    ``Date``, so that no clock of ours is compared with theirs); None where it cannot be read."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        until, now = (parsedate_to_datetime(headers.get(name, "")) for name in ("retry-after", "date"))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError):
        return None


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else jsontext.canonical(arguments)
    return {"id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": text}}
