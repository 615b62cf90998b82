"""What an exported row is: its columns, and what must hold of every row that goes out or comes back in.

Messages and tools are JSON *text*, digit for digit as the lake holds them (cases B07, B09): no reader of an export can
turn 1 into 1.0 or add a null that nobody wrote. The same check stands at both doors, so whatever is exported can be
imported, and a hostile folder is read by the same rules as an honest one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.identity import sha256_hex

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]

# Column -> type word as in ``lake.tables`` (text, float, bool, texts; "?" may be null), in the order of the files.
COLUMNS: dict[str, str] = {
    "trace_id": "text",
    "trace_day": "text",
    "problem_key": "text",
    "cluster_id": "text",
    "pool": "text",
    "uses": "texts",
    "label": "bool?",  # KTO: desirable or not; null elsewhere
    "quality": "float",
    "category": "text?",
    "situation": "text",
    "strategy_cluster": "text",
    "outcome_success": "bool?",
    "outcome_source": "text",
    "reasoning_quality": "float?",
    "judge_kind": "text?",
    "query_verified": "bool",
    "agent_version_id": "text?",
    "policy_checkpoint_id": "text?",
    "filter_version": "text",
    "content_hash": "text",
    "messages": "text",
    "tools": "text",
}
SPLITS = {"train": "train", "validation": "dev"}  # split of the files -> pool of every row in it
SPLIT_OF = {pool: split for split, pool in SPLITS.items()}
USES = {"sft": ("sft",), "kto": ("kto_desirable", "kto_undesirable")}  # use asked for -> uses that select a row

MAX_TEXT_BYTES = 16 << 20
"""Messages or tools above this size (UTF-8) are set aside as ``too_large``."""
MAX_VALUE_BYTES = 64 << 10
"""Any other text of a row, and all items of a list together."""

_ROLES = frozenset(("system", "user", "assistant", "tool"))
_OPTIONAL_TEXT = ("reasoning_content", "name", "tool_call_id")


class SetAside(NamedTuple):
    """A row that did not pass: the file it is in, its 0-based place there, reason in snake_case, detail for people."""

    file: str
    line: int
    reason: str
    detail: str


def schema() -> pa.Schema:
    """The Arrow schema of every Parquet shard, in the order of ``COLUMNS``."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "float": pa.float64(), "bool": pa.bool_(), "texts": pa.list_(pa.string())}
    return pa.schema([pa.field(name, kinds[kind.rstrip("?")], kind.endswith("?")) for name, kind in COLUMNS.items()])


def label_of(use: str, uses: Iterable[str]) -> bool | None:
    """The KTO label of a row by its uses; None for any other use."""
    return "kto_desirable" in uses if use == "kto" else None


def check_row(row: Mapping[str, Any], split: str, use: str) -> None:
    """Refuse a row that is no row of this split and use.

    Raises:
        RejectRow: ``not_an_object``, ``missing_column``, ``unknown_column``, ``wrong_type``, ``too_large``,
            ``lone_surrogate``, ``wrong_pool``, ``wrong_use``, ``wrong_label``, ``bad_messages``, ``bad_tools``,
            ``orphan_tool_message``, ``unanswered_call``, ``arguments_not_object``, ``content_hash_differs``, or what
            the strict JSON reader says (``jsontext.parse``: ``not_json``, ``duplicate_key``, ``too_deep``, ...).
    """
    _check_columns(row)
    if row["pool"] != SPLITS[split]:
        raise RejectRow("wrong_pool", f"pool {row['pool']!a} in split {split}")
    if set(USES[use]).isdisjoint(row["uses"]):
        raise RejectRow("wrong_use", f"uses {', '.join(row['uses'])[:80]!a} in an export for {use}")
    if row["label"] is not label_of(use, row["uses"]):
        raise RejectRow("wrong_label", f"label {row['label']} with uses {', '.join(row['uses'])[:80]!a}")
    messages = _json_of(row["messages"], "messages")
    check_messages(messages)
    check_tools(_json_of(row["tools"], "tools"))
    if sha256_hex(jsontext.canonical(messages).encode()) != row["content_hash"]:
        raise RejectRow("content_hash_differs", "the messages are not those that the content hash was made of")


def with_tools(row: Row) -> Row:
    """A row in which no tools are written in the one way that no reader takes for some: ``[]`` (case B12)."""
    tools = row.get("tools") if isinstance(row, dict) else None
    return {**row, "tools": "[]"} if isinstance(tools, str) and tools.strip() in ("", "null") else row


def check_messages(messages: Any) -> None:
    """Refuse what is no canonical dialogue: roles, text contents, calls with object arguments, each answered in place.

    Raises:
        RejectRow: ``bad_messages``, ``orphan_tool_message``, ``unanswered_call``, ``arguments_not_object``.
    """
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise RejectRow("bad_messages", "expected a list of objects, not an empty one")
    open_calls: list[str] = []
    for place, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise RejectRow("bad_messages", f"message {place} has role {str(role)[:40]!a}")
        if not isinstance(message.get("content"), str | None):
            raise RejectRow("bad_messages", f"message {place} has content that is no text")
        if any(not isinstance(message.get(name), str | None) for name in _OPTIONAL_TEXT):
            raise RejectRow("bad_messages", f"message {place} has a field that is no text")
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                raise RejectRow("orphan_tool_message", f"message {place} answers no call before it")
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            raise RejectRow("unanswered_call", f"message {place} comes before the result of a call")
        open_calls = _calls(message, place)
    if not any(message["role"] == "assistant" for message in messages):
        raise RejectRow("bad_messages", "no assistant message")


def check_tools(tools: Any) -> None:
    """Refuse what is no list of tool definitions. Raises RejectRow ``bad_tools``."""
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RejectRow("bad_tools", "expected a list of objects")


class RowDigest:
    """SHA-256 over rows in order, by column and value: independent of how a file format lays them out."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()
        self.rows = 0

    def add(self, row: Mapping[str, Any]) -> None:
        text = jsontext.canonical({name: row[name] for name in COLUMNS}).encode()
        self._hasher.update(len(text).to_bytes(8, "big"))
        self._hasher.update(text)
        self.rows += 1

    def hexdigest(self) -> str:
        return self._hasher.hexdigest()


def _check_columns(row: Any) -> None:
    if not isinstance(row, Mapping):
        raise RejectRow("not_an_object", type(row).__name__)
    if missing := [name for name in COLUMNS if name not in row]:
        raise RejectRow("missing_column", ", ".join(missing))
    if unknown := [str(name) for name in row if name not in COLUMNS]:
        raise RejectRow("unknown_column", ascii(sorted(unknown)[0][:80]))
    for name, kind in COLUMNS.items():
        value = row[name]
        if value is None and kind.endswith("?"):
            continue
        if not _fits(value, kind.rstrip("?")):
            raise RejectRow("wrong_type", f"{name} is {type(value).__name__}, not {kind}")
        limit = MAX_TEXT_BYTES if name in ("messages", "tools") else MAX_VALUE_BYTES
        try:
            size = sum(len(text.encode()) for text in _texts(value))
        except UnicodeEncodeError:
            raise RejectRow("lone_surrogate", f"{name} holds half of a surrogate pair") from None
        if size > limit:
            raise RejectRow("too_large", f"{name} has {size} bytes, more than {limit}")


def _fits(value: Any, kind: str) -> bool:
    if kind == "texts":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if kind == "float":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and abs(value) < 1e300  # also False for NaN
    return isinstance(value, bool if kind == "bool" else str)


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else value if isinstance(value, list) else []


def _json_of(text: str, name: str) -> Any:
    parsed = jsontext.parse(text.encode())
    if parsed.repairs:
        raise RejectRow(sorted(parsed.repairs)[0], f"in the JSON text of {name}")
    return parsed.value


def _calls(message: Mapping[str, Any], place: int) -> list[str]:
    """Ids of the calls of a message."""
    calls = message.get("tool_calls")
    if calls is None:
        return []
    if message["role"] != "assistant" or not isinstance(calls, list):
        raise RejectRow("bad_messages", f"message {place} has calls that are no list, or is no assistant message")
    ids: list[str] = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(call.get("id"), str):
            raise RejectRow("bad_messages", f"message {place} has a call without an id or a function")
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(name, str) or not name or not isinstance(arguments, str):
            raise RejectRow(
                "bad_messages", f"message {place} has a call without a name or with arguments that are no text"
            )
        if not isinstance(_json_of(arguments, f"arguments of {name[:40]!a}"), dict):
            raise RejectRow("arguments_not_object", f"message {place}: the arguments of {name[:40]!a}")
        if call["id"] in ids:
            raise RejectRow("bad_messages", f"message {place} gives one id to two calls")
        ids.append(call["id"])
    return ids
