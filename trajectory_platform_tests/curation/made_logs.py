"""Small proxy logs and dialogues made to order, with a clock that runs as a real one does."""

from __future__ import annotations

import json
from typing import Any


class MadeLog:
    """Builds the log of one trace call by call; every entry takes 200 ms and follows the one before."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.shown: list[dict[str, Any]] = []
        self.now = 1_777_000_000_000

    def _entry(self, **fields: Any) -> dict[str, Any]:
        self.now += 210
        entry = {"kind": "summary", "timestamp": self.now, "duration_ms": 200.0, "status_code": 200, **fields}
        self.entries.append(entry)
        return entry

    def reply(self, *calls: tuple[str, dict[str, Any]], text: str = "", prompt: str | None = None) -> dict[str, Any]:
        """A reply that emits these calls as XML."""
        written = [{"name": name, "parameters": arguments} for name, arguments in calls]
        content = text + (f"<tool_call>{json.dumps(written)}</tool_call>" if calls else "")
        request: dict[str, Any] = {"model": "m"}
        if prompt is not None:
            request["messages"] = [{"role": "system", "content": "s"}, {"role": "user", "content": prompt}]
        return self._entry(
            method="POST",
            path="/inference/chat/completions",
            json_data=request,
            response={
                "choices": [{"message": {"content": content}, "finish_reason": "stop"}],
                "usage": {"completion_tokens": 40},
            },
        )

    def dispatch(self, tool: str, response: Any = None, **params: Any) -> dict[str, Any]:
        """A request to the shop."""
        body = [{"product_id": "7"}] if response is None else response
        return self._entry(method="GET", path=f"/search/{tool}", params=params, response=body)

    def show(self, name: str, arguments: dict[str, Any], result: Any = None) -> None:
        """A call in the dialogue."""
        self.shown.append({"name": name, "parameters": arguments, "result": result})

    @property
    def replies(self) -> int:
        return sum("completions" in str(entry["path"]) for entry in self.entries)

    def steps(self) -> list[dict[str, Any]]:
        """One step that holds the whole log, one more per shown call."""
        steps = [{"completion": {"message": {"think": "t"}}, "extra_info": {"proxy_calls": self.entries}}]
        return steps + [{"completion": {"message": {"tool_call": [call]}}, "extra_info": {}} for call in self.shown]

    def binding(self, **changes: Any) -> dict[str, Any]:
        """What a truthful listing says about it."""
        known = {"problem_id": "p", "problem_status": "SUCCESS", "inference_total": self.replies or None}
        return {**known, "execution_time": None, **changes}
