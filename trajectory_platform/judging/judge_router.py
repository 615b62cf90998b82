"""One call to one judge model, or teacher, through litellm, and what became of it. The only module that imports it.

litellm speaks to every provider; its own retries, fallbacks, cooldowns and cache are switched off, because there must
be one owner of retries (case E12), because its cache keys leave parameters out (case E11), and because a price it does
not know counts as free (case E14). It drops no parameters either: it would send the request a second time. Nothing is
fetched at import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, RejectRow
from trajectory_platform.escaping import escaped
from trajectory_platform.judging.judge_http import SEEN, Seen, close_connections, retry_after, watched_client
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_reply import RESPONSE_SCHEMA

RATE_LIMITED, SERVER_ERROR, CONNECTION, TIMEOUT, BROKEN_BODY = (
    "rate_limited",
    "server_error",
    "connection_error",
    "timeout",
    "broken_body",
)
UNAUTHORISED, NO_CREDIT, NO_SUCH_MODEL, FORBIDDEN, FILTERED, REFUSED_REQUEST = (
    "unauthorised",
    "no_credit",
    "no_such_model",
    "forbidden",
    "filtered",
    "request_refused",
)
# Kinds of a call that gave no reply, and what each means for people.
FAILURES = {
    RATE_LIMITED: "the endpoint answers 429; all calls of the model pause, then go on",
    SERVER_ERROR: "the endpoint answers 5xx or 408; the model pauses, the next one is asked",
    CONNECTION: "no connection to the endpoint",
    TIMEOUT: "no answer within the model's timeout",
    BROKEN_BODY: "the answer was cut or is no completion",
    UNAUTHORISED: "the endpoint does not take the key (401); the model is asked no more",
    NO_CREDIT: "the account is empty (402); the model is asked no more",
    NO_SUCH_MODEL: "the endpoint does not know the model or the address (404, redirects); the model is asked no more",
    FORBIDDEN: "the endpoint forbids the request (403): the key's rights, or a moderation of this trace",
    FILTERED: "a content filter refused this trace",
    REFUSED_REQUEST: "the endpoint refuses this request (400, 413, 422), e.g. as too long",
}
WAITING = frozenset({RATE_LIMITED, SERVER_ERROR, CONNECTION})
FATAL = frozenset({UNAUTHORISED, NO_CREDIT, NO_SUCH_MODEL})
# About the endpoint, not about the trace: these open the circuit breaker.
INFRASTRUCTURE = frozenset({*WAITING, *FATAL, TIMEOUT, BROKEN_BODY})
_BY_STATUS = {
    401: UNAUTHORISED,
    402: NO_CREDIT,
    403: FORBIDDEN,
    404: NO_SUCH_MODEL,
    405: NO_SUCH_MODEL,
    408: SERVER_ERROR,
    409: SERVER_ERROR,
    425: SERVER_ERROR,
    429: RATE_LIMITED,
}
_FILTER_WORDS = ("content_filter", "content filter", "content management policy", "contentpolicy", "content_policy")
_MAX_ERROR_CHARS = 200


class RawReply(NamedTuple):
    """What an endpoint answered; token counts are None where it did not say."""

    text: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None


class CallFailure(Exception):
    """A call that gave no reply.

    Args:
        kind: one of ``FAILURES``.
        detail: the endpoint's words for people, without keys.
        retry_after: seconds the endpoint asked to wait, or None.
        maybe_billed: whether the endpoint may have generated a reply that did not arrive.
    """

    def __init__(
        self, kind: str, detail: str = "", retry_after: float | None = None, maybe_billed: bool = False
    ) -> None:
        super().__init__(kind)
        self.kind = kind
        self.detail = detail[:_MAX_ERROR_CHARS]
        self.retry_after = retry_after
        self.maybe_billed = maybe_billed


class JudgeRouter:
    """The configured models behind litellm's Router; each call goes to the one model that is named.

    Raises:
        Abort: litellm is missing, or a key's variable is not set.
    """

    def __init__(self, config: JudgeConfig) -> None:
        self._keys = [key for model in config.models if (key := model.api_key())]
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no network at import, and a stable price map
        os.environ.setdefault("LITELLM_LOG", "ERROR")
        try:
            import litellm
        except ImportError as error:
            raise Abort("an LLM judge needs litellm: pip install 'trajectory-platform[judge]'") from error
        litellm.telemetry = False
        litellm.suppress_debug_info = True
        litellm.drop_params = False
        if not getattr(litellm.aclient_session, "judges_traces", False):
            client = watched_client()
            client.judges_traces = True  # type: ignore[attr-defined]
            litellm.aclient_session = client
        self._router = litellm.Router(
            model_list=[_deployment(model) for model in config.models],
            num_retries=0,
            disable_cooldowns=True,
            set_verbose=False,
        )

    async def ask(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> RawReply:
        """One call, which makes one request.

        Raises:
            CallFailure: no reply, with the kind of failure.
        """
        options: dict[str, Any] = {}
        if model.structured_output == "json_schema":
            options["response_format"] = {"type": "json_schema", "json_schema": RESPONSE_SCHEMA}
        elif model.structured_output == "json_object":
            options["response_format"] = {"type": "json_object"}
        return self._reply(await self._call(model, messages, options))

    async def complete(
        self, model: JudgeModel, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """One call of any kind, which makes one request: a chat completion as a JSON object, keys taken out of it.

        Args:
            messages: in the API's form, tool calls and tool results among them.
            options: further fields of the request, e.g. ``tools``; they win over the model's own.

        Raises:
            CallFailure: no reply, with the kind of failure.
        """
        response = await self._call(model, messages, options)
        try:
            text = self._without_keys(jsontext.dumps(response.model_dump(mode="json", warnings=False)))
            value = jsontext.parse(text.encode()).value
        except (AttributeError, TypeError, ValueError, RejectRow):
            raise CallFailure(BROKEN_BODY, "the answer is no completion", maybe_billed=True) from None
        if not isinstance(value, dict) or not value.get("choices"):
            raise CallFailure(BROKEN_BODY, "the answer has no choices", maybe_billed=True)
        return value

    async def _call(self, model: JudgeModel, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Any:
        seen = Seen()
        token = SEEN.set(seen)
        try:
            return await self._router.acompletion(
                **{
                    "model": model.name,
                    "messages": list(messages),
                    "temperature": model.temperature,
                    "max_tokens": model.max_tokens,
                    "timeout": model.timeout_s,
                    "num_retries": 0,
                    "max_retries": 0,
                    **options,
                }
            )
        except Exception as error:  # noqa: BLE001 - every provider's client raises its own; all become one kind
            # The cause is dropped on purpose: its text may repeat headers of the request.
            raise self._failure(error, seen) from None
        finally:
            SEEN.reset(token)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await close_connections()

    def _reply(self, response: Any) -> RawReply:
        try:
            choice = response.choices[0]
            text, finish = choice.message.content, choice.finish_reason
        except (AttributeError, IndexError, TypeError):
            raise CallFailure(BROKEN_BODY, "the answer has no choices", maybe_billed=True) from None
        usage = getattr(response, "usage", None)
        return RawReply(
            self._without_keys(text) if isinstance(text, str) else None,
            finish if isinstance(finish, str) else None,
            _count(getattr(usage, "prompt_tokens", None)),
            _count(getattr(usage, "completion_tokens", None)),
        )

    def _failure(self, error: Exception, seen: Seen) -> CallFailure:
        name = type(error).__name__
        detail = escaped(self._without_keys(f"{name}: {' '.join(str(error).split())}"))
        if seen.requests:
            kind = _kind_seen(seen, "Timeout" in name, detail.lower())
            billed = kind in (TIMEOUT, BROKEN_BODY) and seen.reached
            return CallFailure(kind, detail, seen.retry_after, billed)
        kind = _kind_told(getattr(error, "status_code", None), name, detail.lower())
        return CallFailure(kind, detail, _told_retry_after(error), kind in (TIMEOUT, BROKEN_BODY))

    def _without_keys(self, text: str) -> str:
        """An endpoint may repeat what it was sent; a key must not come back into files and logs."""
        for key in self._keys:
            text = text.replace(key, "[key]")
        return text


def _deployment(model: JudgeModel) -> dict[str, Any]:
    parameters: dict[str, Any] = {"model": model.model, "max_retries": 0, "timeout": model.timeout_s}
    if model.api_base:
        parameters["api_base"] = model.api_base
    # A client library insists on some key even where a local server asks for none.
    parameters["api_key"] = model.api_key() or ("none" if model.api_base else None)
    return {"model_name": model.name, "litellm_params": parameters}


def _count(value: Any) -> int | None:
    """A token count; 0 is what client libraries fill in where the endpoint said nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _kind_seen(seen: Seen, timed_out: bool, detail: str) -> str:
    """The kind of failure by what the wire showed."""
    if not seen.reached:
        return CONNECTION
    if seen.status is None or 200 <= seen.status < 300:
        return TIMEOUT if timed_out else BROKEN_BODY
    return _kind_of_status(seen.status, detail)


def _kind_told(status: Any, name: str, detail: str) -> str:
    """The kind of failure by litellm's exception, for providers it reaches with a client of its own."""
    if "Timeout" in name:
        return TIMEOUT
    if "APIConnection" in name or not isinstance(status, int) or 200 <= status < 300:
        return CONNECTION
    return _kind_of_status(status, detail)


def _kind_of_status(status: int, detail: str) -> str:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return SERVER_ERROR
    if status < 400:
        return NO_SUCH_MODEL
    return FILTERED if any(word in detail for word in _FILTER_WORDS) else REFUSED_REQUEST


def _told_retry_after(error: Exception) -> float | None:
    for place in (error, getattr(error, "response", None)):
        headers = getattr(place, "litellm_response_headers", None) or getattr(place, "headers", None)
        if headers is not None and headers.get("retry-after") is not None:
            return retry_after(str(headers.get("retry-after")), headers.get("date"))
    return None
