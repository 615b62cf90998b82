"""One call to one judge model through litellm, and what became of it. The only module that imports litellm.

litellm speaks to every provider; its own retries, fallbacks, cooldowns and cache are switched off, because there must
be one owner of retries (case E12), because its cache keys leave parameters out (case E11), and because a price it does
not know counts as free (case E14). Nothing is fetched at import.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from trajectory_platform.errors import Abort
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_reply import RESPONSE_SCHEMA

# kinds of a call that gave no reply
RATE_LIMITED, SERVER_ERROR, CONNECTION, TIMEOUT, UNAUTHORISED, REFUSED_REQUEST, BROKEN_BODY = (
    "rate_limited",
    "server_error",
    "connection_error",
    "timeout",
    "unauthorised",
    "request_refused",
    "broken_body",
)
WAITING = frozenset({RATE_LIMITED, SERVER_ERROR, CONNECTION})
FATAL = frozenset({UNAUTHORISED, REFUSED_REQUEST})
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
        kind: one of the constants above.
        retry_after: seconds the endpoint asked to wait, or None.
    """

    def __init__(self, kind: str, detail: str = "", retry_after: float | None = None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.detail = detail[:_MAX_ERROR_CHARS]
        self.retry_after = retry_after


class JudgeRouter:
    """The configured models behind litellm's Router; each call goes to the one model that is named."""

    def __init__(self, config: JudgeConfig) -> None:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no network at import, and a stable price map
        os.environ.setdefault("LITELLM_LOG", "ERROR")
        try:
            import litellm
        except ImportError as error:
            raise Abort("an LLM judge needs litellm: pip install 'trajectory-platform[judge]'") from error
        litellm.telemetry = False
        litellm.suppress_debug_info = True
        litellm.drop_params = True  # a provider without response_format still answers; the parser is strict anyway
        self._litellm = litellm
        self._router = litellm.Router(
            model_list=[_deployment(model) for model in config.models],
            num_retries=0,
            disable_cooldowns=True,
            set_verbose=False,
        )

    async def ask(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> RawReply:
        """One call.

        Raises:
            CallFailure: no reply, with the kind of failure.
        """
        options: dict[str, Any] = {}
        if model.structured_output == "json_schema":
            options["response_format"] = {"type": "json_schema", "json_schema": RESPONSE_SCHEMA}
        elif model.structured_output == "json_object":
            options["response_format"] = {"type": "json_object"}
        try:
            response = await self._router.acompletion(
                model=model.name,
                messages=list(messages),
                temperature=model.temperature,
                max_tokens=model.max_tokens,
                timeout=model.timeout_s,
                num_retries=0,
                max_retries=0,
                **options,
            )
        except Exception as error:
            raise _failure(error) from error
        return _reply(response)


def _deployment(model: JudgeModel) -> dict[str, Any]:
    parameters: dict[str, Any] = {"model": model.model, "max_retries": 0, "timeout": model.timeout_s}
    if model.api_base:
        parameters["api_base"] = model.api_base
    # A client library insists on some key even where a local server asks for none.
    parameters["api_key"] = model.api_key() or ("none" if model.api_base else None)
    if model.usd_per_million_input is not None:
        parameters["input_cost_per_token"] = model.usd_per_million_input / 1e6
        parameters["output_cost_per_token"] = (model.usd_per_million_output or 0.0) / 1e6
    return {"model_name": model.name, "litellm_params": parameters}


def _reply(response: Any) -> RawReply:
    try:
        choice = response.choices[0]
        text, finish = choice.message.content, choice.finish_reason
    except (AttributeError, IndexError, TypeError) as error:
        raise CallFailure(BROKEN_BODY, "the answer has no choices") from error
    usage = getattr(response, "usage", None)
    return RawReply(
        text if isinstance(text, str) else None,
        finish if isinstance(finish, str) else None,
        _count(getattr(usage, "prompt_tokens", None)),
        _count(getattr(usage, "completion_tokens", None)),
    )


def _count(value: Any) -> int | None:
    """A token count; 0 is what client libraries fill in where the endpoint said nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _failure(error: Exception) -> CallFailure:
    """The kind of failure by HTTP status first, then by the name of the exception; its text is for people only."""
    name = type(error).__name__
    status = getattr(error, "status_code", None)
    detail = f"{name}: {' '.join(str(error).split())}"
    if "Timeout" in name or status == 408:
        return CallFailure(TIMEOUT, detail)
    if "APIConnection" in name or "ConnectError" in name:
        kind = BROKEN_BODY if "JSON" in detail or "Expecting" in detail or "decode" in detail.lower() else CONNECTION
        return CallFailure(kind, detail)
    if status == 429 or "RateLimit" in name:
        return CallFailure(RATE_LIMITED, detail, _retry_after(error))
    if status in (401, 403):
        return CallFailure(UNAUTHORISED, detail)
    if isinstance(status, int) and 400 <= status < 500:
        return CallFailure(REFUSED_REQUEST, detail)
    if isinstance(status, int) and status >= 500:
        broken = "JSON" in detail or "Expecting" in detail or "decode" in detail.lower()
        return CallFailure(BROKEN_BODY if broken else SERVER_ERROR, detail, _retry_after(error))
    return CallFailure(CONNECTION, detail)


def _retry_after(error: Exception) -> float | None:
    """Seconds of a Retry-After header; dates are not read, the backoff applies then."""
    for place in (error, getattr(error, "response", None)):
        headers = getattr(place, "headers", None) or getattr(place, "litellm_response_headers", None)
        if headers is None:
            continue
        for key in ("retry-after", "Retry-After", "llm_provider-retry-after"):
            value = headers.get(key)
            try:
                seconds = float(value)
            except (TypeError, ValueError):
                continue
            if seconds == seconds and seconds >= 0:
                return seconds
    return None
