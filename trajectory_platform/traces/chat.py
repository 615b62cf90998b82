"""Reader of chat messages: OpenAI rows (``{messages, tools}`` or a bare list) and chat steps (domain 1.4).

Unlike the arena's dialogue steps, the content *is* what the model wrote: thinking and calls are parsed out of it where
there is no native ``tool_calls``. A row whose exchange is incomplete is set aside as a whole: without the results the
model saw, nothing behind them can be understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.traces import evidence as proxy_log
from trajectory_platform.traces.calls import ParsedCall
from trajectory_platform.traces.control_tokens import has_chat_token
from trajectory_platform.traces.rendering import parse_tools
from trajectory_platform.traces.schema import Draft, Trajectory, result_text
from trajectory_platform.traces.sn15 import arena_tools, read_frame, strip_log
from trajectory_platform.traces.toolcalls import parse_reply

READER = "chat"
READER_VERSION = "1"

_ROLES = {"developer": "system", "function": "tool", "human": "user", "gpt": "assistant"}
_TEXT_PARTS = ("text", "input_text", "output_text")
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")


def read_messages(obj: Any, *, binding: Mapping[str, Any] | None = None) -> Trajectory:
    """Chat messages as a canonical trajectory. Never raises for any JSON value; damage is named in ``malformed``.

    Args:
        obj: a list of messages or chat steps, or an object with ``messages`` and perhaps ``tools``.
        binding: the pair's RAW_TRACES values, or None.
    """
    row = obj if isinstance(obj, dict) else {"messages": obj}
    messages = row.get("messages")
    steps = messages if isinstance(messages, list) else []
    source_steps = strip_log(steps)
    reader = _ChatReader()
    draft = reader.draft
    draft.watch_hidden(source_steps)
    if not isinstance(messages, list):
        draft.damage("messages_not_list", type(messages).__name__)
    query = reader.read(steps, binding)
    if row.get("finish_reason") == "length":
        draft.damage("truncated", "finish_reason is length")
    tools: list[dict[str, Any]] = []
    try:
        tools = parse_tools(row["tools"]) if "tools" in row else arena_tools() if reader.from_arena else []
    except RejectRow as error:
        draft.damage("bad_tools", error.detail)
    if has_chat_token(jsontext.dumps(tools)):
        draft.damage("control_token_in_tools", "a tool schema holds a chat control token")
    return draft.finish(
        reader=READER,
        version=READER_VERSION,
        query=query,
        tools=tools,
        source_steps=source_steps,
        evidence=proxy_log.extract(steps, binding=binding),
    )


class _Turn:
    """The calls of one assistant message that wait for their results."""

    def __init__(self, issued: list[tuple[str, str]], calls: list[ParsedCall]) -> None:
        self.issued = issued
        self.results: list[str | None] = [None] * len(calls)
        ids = [call.call_id for call in calls]
        self._by_id = {name: position for position, name in enumerate(ids)}
        self._named = None not in self._by_id
        self._unique = len(self._by_id) == len(ids)
        self._first_free = 0

    def place(self, source_id: Any) -> int | None:
        """Which call a result answers: by id where the turn's ids are unique, else by position; None: none of them."""
        while self._first_free < len(self.results) and self.results[self._first_free] is not None:
            self._first_free += 1
        if self._first_free == len(self.results):
            return None
        if not isinstance(source_id, str) or not self._named:
            return self._first_free
        position = self._by_id.get(source_id)
        if position is None:
            return None
        if self._unique:
            return position if self.results[position] is None else None
        return self._first_free


class _ChatReader:
    """Walks the messages once; results are written when the turn they belong to is over, in the order of its calls."""

    def __init__(self) -> None:
        self.draft = Draft()
        self.turn: _Turn | None = None
        self.source_ids: set[str] = set()
        self.from_arena = False
        self.opening: str | None = None  # the query, until a message other than the system's begins

    def read(self, steps: list[Any], binding: Mapping[str, Any] | None) -> str | None:
        self.from_arena = any(isinstance(step, dict) and "extra_info" in step for step in steps)
        query = read_frame(self.draft, steps, binding) if self.from_arena else None
        self.opening = query
        for number, step in enumerate(steps):
            self._message(number, step)
        self._end_turn(None)
        if query is None:
            query = next((message["content"] for message in self.draft.messages if message["role"] == "user"), None)
        return query

    def _message(self, number: int, step: Any) -> None:
        where = f"message {number}"
        if not isinstance(step, dict):
            self.draft.damage("message_not_object", f"{where} is {type(step).__name__}")
            return
        role = step.get("role")
        role = _ROLES.get(role, role) if isinstance(role, str) else role
        if role != "system" and self.opening is not None:
            if role != "user":
                self.draft.add_user(self.opening, "query")
            self.opening = None
        if role == "tool":
            self._result(step, where)
            return
        self._end_turn(where)
        if role == "assistant":
            self._assistant(step, where)
        elif role in ("user", "system"):
            text = self._text(step.get("content"), where)
            self.draft.messages.append({"role": role, "content": self.draft.clean(text, where)})
        else:
            self.draft.damage("unknown_role", f"{where}: role {str(role)[:40]!a}")

    def _assistant(self, step: dict[str, Any], where: str) -> None:
        text = self._text(step.get("content"), where)
        reply = parse_reply(text, step.get("tool_calls") or step.get("function_call"))
        if reply.error is not None:
            self.draft.damage(reply.error, where)
            return
        shown = next((step[key] for key in _REASONING_KEYS if isinstance(step.get(key), str) and step[key]), "")
        reasoning = "\n".join(part for part in (shown, reply.think) if part)
        content = "\n".join(part for part in (reply.rest, reply.response) if part)
        if not reasoning and not content and not reply.calls:
            self.draft.damage("message_empty", f"{where}: the message says and does nothing")
            return
        for call in reply.calls:
            if call.call_id is not None:
                if call.call_id in self.source_ids:
                    self.draft.repair("duplicate_tool_call_id", where)
                self.source_ids.add(call.call_id)
        issued = self.draft.add_assistant(reasoning, content, reply.calls, where)
        if reply.calls:
            self.turn = _Turn(issued, reply.calls)

    def _result(self, step: dict[str, Any], where: str) -> None:
        place = self.turn.place(step.get("tool_call_id")) if self.turn is not None else None
        if self.turn is None or place is None:
            self.draft.damage("orphan_tool_message", f"{where} answers no call of the turn before it")
            return
        content = step.get("content")
        if isinstance(content, list):
            content = self._text(content, where) if _is_parts(content) else result_text(content)
        self.turn.results[place] = "" if content is None else result_text(content)

    def _end_turn(self, where: str | None) -> None:
        """Write the results of the turn; something that follows an unanswered call is damage."""
        turn, self.turn = self.turn, None
        if turn is None:
            return
        unanswered = [name for (_, name), result in zip(turn.issued, turn.results, strict=True) if result is None]
        if unanswered and where is not None:
            self.draft.damage("missing_tool_result", f"before {where}: {unanswered[0][:64]!a} has no result")
        elif unanswered:
            self.draft.flag("call_without_result")
        for call, result in zip(turn.issued, turn.results, strict=True):
            if result is not None:
                self.draft.add_result(call, result, where or "last turn")

    def _text(self, content: Any, where: str) -> str:
        """Content as one text: null is "" (case A14), text parts are joined (case A26)."""
        if isinstance(content, str):
            return content
        if content is None:
            return ""
        if not isinstance(content, list):
            self.draft.damage("content_not_text", f"{where}: content is {type(content).__name__}")
            return ""
        texts: list[str] = []
        for part in content:
            text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
            kind = part.get("type", "text") if isinstance(part, dict) else "text"
            if kind not in _TEXT_PARTS or not isinstance(text, str):
                self.draft.damage("non_text_part", f"{where}: a part of type {str(kind)[:40]!a}")
                return ""
            texts.append(text)
        return "".join(texts)


def _is_parts(content: list[Any]) -> bool:
    """Whether a list is a list of content parts, and not the result rows of a tool."""
    return bool(content) and all(isinstance(part, dict) and "type" in part for part in content)
