"""The canonical trajectory: what every reader of a raw shape returns (design 3, "Canonical messages").

``messages`` are OpenAI chat messages: ``{role: user | system, content}``, ``{role: assistant, content,
reasoning_content?, tool_calls?: [{id, type: "function", function: {name, arguments}}]}`` and ``{role: tool,
tool_call_id, name, content}``. ``arguments`` is canonical JSON text. Ids are re-issued (``call_0`` ...) in the order of
the calls, so the content hash does not depend on the ids of the source; those stay in ``source_steps``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.identity import sha256_hex
from trajectory_platform.traces.calls import ParsedCall
from trajectory_platform.traces.control_tokens import (
    CONTROL_TOKEN,
    HIDDEN_CHARACTER,
    TAG_IN_REPLY,
    blank_hidden,
    has_chat_token,
    may_hide,
    neutralise,
)

Message = dict[str, Any]

_ALIASES = {
    "find_product": ("query", "q"),
    "web_search": ("query", "q"),
    "view_product_information": ("product_id", "product_ids"),
    "recommend_product": ("product_id", "product_ids"),
}


@dataclass
class Trajectory:
    """One trace in canonical form.

    Attributes:
        messages: canonical messages; empty when malformed, so that nothing half-read can be trained on.
        tools: OpenAI tool schemas that the agent could use.
        query: the query as the trace states it, or None.
        source_steps: the dialogue as read, without proxy log and without the text the harness rendered.
        source_text: JSON text of ``source_steps`` where the reader has written it already, or None.
        evidence: ``traces.evidence.extract`` of the dialogue.
        repairs: ``{reason, where, count}``, sorted.
        flags: peculiarities that are no damage, sorted.
        malformed: reason of quarantine, or None.
        malformed_detail: where and what, for people.
        reader, reader_version: who read it.
        content_hash: SHA-256 of the canonical JSON of ``messages``; None when malformed.
        steps, tool_calls: steps of the source, calls that could be read.
    """

    messages: list[Message]
    tools: list[dict[str, Any]]
    query: str | None
    source_steps: list[Any]
    evidence: dict[str, Any]
    repairs: list[dict[str, Any]]
    flags: list[str]
    malformed: str | None
    malformed_detail: str | None
    reader: str
    reader_version: str
    content_hash: str | None = None
    steps: int = 0
    tool_calls: int = 0
    source_text: str | None = None


@dataclass
class Draft:
    """A trajectory while it is read: messages so far, what was repaired, what is damaged."""

    messages: list[Message] = field(default_factory=list)
    calls: int = 0
    hidden_characters: bool = False
    source_text: str | None = None
    _repairs: dict[tuple[str, str], int] = field(default_factory=dict)
    _flags: set[str] = field(default_factory=set)
    _damage: list[tuple[str, str]] = field(default_factory=list)

    def watch_hidden(self, source_steps: list[Any]) -> None:
        """Look for invisible characters in every text only where the source has any at all."""
        self.source_text = jsontext.dumps(source_steps)
        self.hidden_characters = may_hide(self.source_text.encode())

    def repair(self, reason: str, where: str, count: int = 1) -> None:
        """Count a repair."""
        key = (reason, where)
        self._repairs[key] = self._repairs.get(key, 0) + count

    def flag(self, name: str) -> None:
        """Note a peculiarity."""
        self._flags.add(name)

    def damage(self, reason: str, detail: str) -> None:
        """Note what makes the trace malformed; the first reason names it."""
        self._damage.append((reason, detail))

    @property
    def malformed(self) -> str | None:
        return self._damage[0][0] if self._damage else None

    @property
    def malformed_detail(self) -> str | None:
        if not self._damage:
            return None
        more = f" (and {len(self._damage) - 1} more)" if len(self._damage) > 1 else ""
        return self._damage[0][1] + more

    def clean(self, text: str, where: str, reason: str = CONTROL_TOKEN) -> str:
        """A text as a message may carry it (see ``traces.control_tokens``); what was replaced is counted."""
        if "<" in text:
            text, found = neutralise(text)
            if found:
                self.repair(reason, where, found)
        if self.hidden_characters:
            text, found = blank_hidden(text)
            if found:
                self.repair(HIDDEN_CHARACTER, where, found)
        return text

    def add_user(self, text: str, where: str) -> None:
        """Append a user message."""
        self.messages.append({"role": "user", "content": self.clean(text, where)})

    def add_assistant(self, reasoning: str, content: str, calls: list[ParsedCall], where: str) -> list[tuple[str, str]]:
        """Append an assistant message; returns (new id, name) of its calls."""
        message: Message = {"role": "assistant", "content": self.clean(content, where, TAG_IN_REPLY) if content else ""}
        if reasoning:
            message["reasoning_content"] = self.clean(reasoning, where, TAG_IN_REPLY)
        issued = [(f"call_{self.calls + position}", call.name) for position, call in enumerate(calls)]
        if calls:
            message["tool_calls"] = [
                {
                    "id": new_id,
                    "type": "function",
                    "function": {"name": name, "arguments": self._arguments(call, where)},
                }
                for (new_id, name), call in zip(issued, calls, strict=True)
            ]
            self.calls += len(calls)
        self.messages.append(message)
        return issued

    def add_result(self, call: tuple[str, str], content: str, where: str) -> None:
        """Append the result of a call."""
        new_id, name = call
        self.messages.append(
            {"role": "tool", "tool_call_id": new_id, "name": name, "content": self.clean(content, where)}
        )

    def _arguments(self, call: ParsedCall, where: str) -> str:
        """Canonical text of a call's arguments, with the published spelling of their keys (domain 6: 4, 5, 17).

        A chat control token cannot be neutralised here without changing what the model asked for: quarantine. The tag
        ``</tool_call>`` is an honest argument (case A13) and stays.
        """
        for reason in call.repairs:
            self.repair(reason, where)
        arguments, text = call.arguments, call.arguments_text
        alias, key = _ALIASES.get(call.name, ("", ""))
        if key:
            if alias in arguments and key not in arguments:
                arguments = {key if name == alias else name: value for name, value in arguments.items()}
                self.repair("argument_alias", where)
            if key == "product_ids" and not isinstance(arguments.get(key, ""), str):
                joined = _joined_ids(arguments[key])
                if joined is not None:
                    arguments = {**arguments, key: joined}
                    self.repair("product_ids_not_text", where)
            if arguments is not call.arguments:
                text = jsontext.canonical(arguments)
        if has_chat_token(text) or has_chat_token(call.name):
            self.damage("control_token_in_call", f"{where}: a chat control token in the call of {call.name[:64]!a}")
        return text

    def finish(
        self,
        *,
        reader: str,
        version: str,
        query: str | None,
        tools: list[dict[str, Any]],
        source_steps: list[Any],
        evidence: dict[str, Any],
    ) -> Trajectory:
        """The trajectory; its content hash is over the canonical messages. A malformed one keeps its source only."""
        malformed = self.malformed
        digest = None if malformed else sha256_hex(jsontext.canonical(self.messages).encode())
        repairs = [
            {"reason": reason, "where": where, "count": count}
            for (reason, where), count in sorted(self._repairs.items())
        ]
        return Trajectory(
            messages=[] if malformed else self.messages,
            tools=tools,
            query=query,
            source_steps=source_steps,
            evidence=evidence,
            repairs=repairs,
            flags=sorted(self._flags),
            malformed=malformed,
            malformed_detail=self.malformed_detail,
            reader=reader,
            reader_version=version,
            content_hash=digest,
            steps=len(source_steps),
            tool_calls=self.calls,
            source_text=self.source_text,
        )


def _joined_ids(value: Any) -> str | None:
    """Ids given as a list or number, as the comma-separated text of the tool's schema; None for anything else."""
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in items):
        return None
    return ",".join(str(item).strip() for item in items)


def result_text(value: Any) -> str:
    """A tool result as message content: text as it is, anything else as compact JSON."""
    return value if isinstance(value, str) else jsontext.dumps(value)
