"""The echo test: was the model merely asked to repeat a call that the harness had already planned?

An agent can write its plan into the prompt and let the model copy it; order-based measures then give full credit
(domain 2.7, 6 item 42). Where the log holds the prompt, a call whose arguments stand there verbatim, outside the
model's own earlier words, is an echo. Only booleans are kept, never the prompt.
"""

from __future__ import annotations

import json
from typing import Any

from trajectory_platform.traces.toolcalls import ParsedCall

_MIN_CHARACTERS = 14  # shorter arguments ({"page":1}) occur in every instruction text


class EchoTest:
    """Remembers the compacted prompts and the calls already made in one trace (prompts repeat from call to call)."""

    def __init__(self) -> None:
        self._compact: dict[str, str] = {}
        self._emitted: set[tuple[str, str]] = set()

    def test(self, request: Any, calls: list[ParsedCall], forms: list[dict[str, str]]) -> list[bool] | None:
        """One boolean per call, or None when the log does not hold the prompt.

        A call the model has made before may stand in the history, so a repetition is no echo.
        """
        messages = request.get("messages") if isinstance(request, dict) else None
        echoed: list[bool] | None = None
        if isinstance(messages, list):
            prompt = [self._squeeze(text) for text in _outside_text(messages)] if calls else []
            echoed = [
                (form["name"], form["arguments"]) not in self._emitted and _stands_in(call, prompt)
                for call, form in zip(calls, forms, strict=True)
            ]
        self._emitted.update((form["name"], form["arguments"]) for form in forms)
        return echoed

    def _squeeze(self, text: str) -> str:
        compact = self._compact.get(text)
        if compact is None:
            compact = self._compact[text] = "".join(text.split()).replace('\\"', '"')
        return compact


def _outside_text(messages: list[Any]) -> list[str]:
    """Texts of the prompt that are not the model's own and no tool results."""
    texts: list[str] = []
    for message in messages:
        if not isinstance(message, dict) or message.get("role") in ("assistant", "tool"):
            continue
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts.extend(
                part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
            )
    return texts


def _stands_in(call: ParsedCall, prompt: list[str]) -> bool:
    if not call.arguments or len(call.arguments_text) < _MIN_CHARACTERS:
        return False
    written = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))
    forms = {"".join(form.split()).replace('\\"', '"') for form in (written, call.arguments_text)}
    return any(form in text for text in prompt for form in forms)
