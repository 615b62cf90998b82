"""Any OpenAI-compatible endpoint as a policy: a vLLM server, a hosted API.

One request is one POST to ``{base}/chat/completions``, sent with httpx and repeated by tenacity. Not with the openai
client: it reads ``OPENAI_*`` variables (organisation, project, admin key, extra headers) and would send them to
whatever host the user named; nor with litellm, whose import takes 9 s and may fetch prices.

Whatever comes back, :meth:`EndpointPolicy.reply` returns a ``Reply``; a failure is its ``error``:

=====================  =================================================================================
``timeout``            no complete answer in ``Limits.reply_timeout_s``; final: the time is used up
``connection_failed``  refused, reset, cut off; repeated
``http_429``,          and 408, 425, every other 5xx; repeated, ``Retry-After`` honoured
``http_500``, ...
``http_400``, ...      every other status; final at once
``quota_exhausted``    a 429 that no waiting cures; final
``context_full``       the server says that the history does not fit
``bad_reply``          no JSON, cut JSON, NaN, no choices, wrong types: final, it was answered (and paid for)
``reply_too_large``    more than ``MAX_REPLY_BYTES``
=====================  =================================================================================

A repeated POST may be executed twice by the server; what its first execution cost is not known and not counted.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, RejectRow, RetryLater
from trajectory_platform.escaping import escaped
from trajectory_platform.evaluation.endpoint_wire import EndpointFailure, api_messages, read_answer
from trajectory_platform.evaluation.environment import TIMEOUT, Reply, TurnRequest
from trajectory_platform.evaluation.policy_sampling import Sampling, turn_seed
from trajectory_platform.identity import digest_json, sha256_hex

if TYPE_CHECKING:
    import httpx
    import tenacity

MAX_REPLY_BYTES = 16 << 20
BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 8.0
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_KEY = re.compile(r"[\x21-\x7e]+")
_SETUP = frozenset({"http_401", "http_403", "http_404", "quota_exhausted"})  # the same for every request


class Price(NamedTuple):
    """USD per million tokens of prompt and completion."""

    prompt: float
    completion: float

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """USD of one reply."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


class EndpointPolicy:
    """Answers with a model behind HTTP.

    The driver decides how many requests are in flight; the connection pool has no limit of its own.

    Attributes:
        name: ``endpoint:{base_url}#{model}|{sampling}``, and a digest of ``body``; never the key.
        priced: whether a price is known. Where it is not, ``Reply.cost_usd`` is 0.0 and means nothing.
        counts: ``replies``, ``failures``, ``retries``; ``unpriced``: replies whose usage the server did not report, so
            that they count as 0.0 although a price is known.

    Args:
        base_url: ``http(s)://host[:port][/v1]``; without a path ``/v1`` is meant.
        key_variable: name of the environment variable that holds the key; None sends none. The key is in the request
            header and nowhere else.
        price: of the model; None where unknown.
        reasoning: ``field`` sends earlier thinking back as ``reasoning_content``, which vLLM hands to the chat template
            (so a checkpoint sees the context it was trained in); ``omit`` leaves it out, as hosted APIs expect.
        body: further fields of the request (``{"top_k": 20}``); a value of None removes a field.
        attempts: requests per reply at most, the first included.
        outage: ``reply`` reports a failure as the reply's error, so that the attempt counts as failed; ``stop`` raises
            ``RetryLater`` once repeating did not help and ``Abort`` for a refused key or unknown model, which is not
            the policy's failure: the driver stops, and the evaluation can be resumed.
        sleep: waits between attempts.

    Raises:
        Abort: a URL with credentials, a query or another scheme; a variable that is not set.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        sampling: Sampling | None = None,
        key_variable: str | None = None,
        price: Price | None = None,
        reasoning: Literal["omit", "field"] = "omit",
        body: Mapping[str, Any] | None = None,
        attempts: int = 5,
        outage: Literal["reply", "stop"] = "reply",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.base_url, self._local = endpoint_url(base_url)
        if not model or not model.isprintable():
            raise Abort("an endpoint needs the name of a model, as endpoint:URL#MODEL")
        if attempts < 1:
            raise Abort(f"attempts must be at least 1, not {attempts}")
        self.model, self.sampling, self.priced = model, sampling or Sampling(), price is not None
        self.counts: Counter[str] = Counter(replies=0, failures=0, retries=0, unpriced=0)
        more = dict(body or {}) | ({"reasoning": reasoning} if reasoning != "omit" else {})
        self.name = f"endpoint:{self.base_url}#{model}|{self.sampling.label}"
        self.name += f",body={digest_json(more)[:8]}" if more else ""
        self._key = _read_key(key_variable)
        self._price, self._reasoning, self._body = price, reasoning, dict(body or {})
        self._attempts, self._outage, self._sleep = attempts, outage, sleep
        self._http: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def reply(self, request: TurnRequest) -> Reply:
        """The next reply; see the module's table for ``error``. Raises only where ``outage`` is ``stop``."""
        begun = time.perf_counter()
        seed = turn_seed(request.task, request.turn, self.sampling.seed)
        try:
            body = self._request_body(request, seed)
            answer = await self._ask(body, seed, request.limits.reply_timeout_s)
        except RejectRow as error:  # the history cannot be shown to a model
            return Reply(error=str(error))
        except EndpointFailure as failure:
            return self._failed(failure, time.perf_counter() - begun)
        self.counts["replies"] += 1
        cost = 0.0
        if self._price is not None and (answer.prompt_tokens is None or answer.completion_tokens is None):
            self.counts["unpriced"] += 1
        elif self._price is not None:
            cost = self._price.cost(answer.prompt_tokens or 0, answer.completion_tokens or 0)
        return answer._replace(cost_usd=cost, seconds=time.perf_counter() - begun)

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        http, loop, self._http, self._loop = self._http, self._loop, None, None
        if http is not None and loop is asyncio.get_running_loop():
            await http.aclose()

    async def __aenter__(self) -> EndpointPolicy:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _request_body(self, request: TurnRequest, seed: int) -> dict[str, Any]:
        own, limits = self.sampling, request.limits
        body: dict[str, Any] = {
            "model": self.model,
            "messages": api_messages(
                request.messages, max_result_chars=limits.max_result_chars, reasoning=self._reasoning == "field"
            ),
            "temperature": own.temperature,
            "max_tokens": min(limits.reply_tokens, own.max_tokens or limits.reply_tokens),
            "seed": seed,
        }
        if own.top_p < 1:
            body["top_p"] = own.top_p
        if request.tools:
            body["tools"] = request.tools
        return {name: value for name, value in {**body, **self._body}.items() if value is not None}

    async def _ask(self, body: dict[str, Any], seed: int, patience_s: float) -> Reply:
        """Ask until there is an answer or a final failure, or the next attempt would begin after ``patience_s``."""
        import tenacity

        data = jsontext.dumps(body).encode()
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, EndpointFailure) and error.again),
            wait=lambda state: _pause(state, seed),
            stop=tenacity.stop_any(tenacity.stop_after_attempt(self._attempts), tenacity.stop_before_delay(patience_s)),
            before_sleep=self._count_retry,
            sleep=self._sleep,
            reraise=True,
        )
        answer: Reply = await retrying(self._once, data, patience_s)
        return answer

    async def _once(self, data: bytes, patience_s: float) -> Reply:
        import httpx

        try:
            async with asyncio.timeout(patience_s):
                status, headers, received = await self._post(data)
        except TimeoutError as error:
            raise EndpointFailure(TIMEOUT, f"no complete answer in {patience_s:g} s") from error
        except httpx.DecodingError as error:
            raise EndpointFailure("bad_reply", "bad_encoding") from error
        except httpx.HTTPError as error:
            detail = f"{type(error).__name__}: {error}"
            raise EndpointFailure("connection_failed", detail, again=True) from error
        return read_answer(status, headers, received)

    async def _post(self, data: bytes) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        url = f"{self.base_url}/chat/completions"
        received = bytearray()
        async with self._client().stream("POST", url, content=data, headers=headers) as response:
            async for chunk in response.aiter_bytes():
                received += chunk
                if len(received) > MAX_REPLY_BYTES:
                    raise EndpointFailure("reply_too_large", f"more than {MAX_REPLY_BYTES} bytes")
        return response.status_code, response.headers, bytes(received)

    def _client(self) -> httpx.AsyncClient:
        """The connections of the running event loop. A proxy of the environment is used, but never for this machine;
        redirects are not followed: they would carry the request elsewhere."""
        import httpx

        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            self._loop = loop
            self._http = httpx.AsyncClient(
                timeout=None,  # one timeout for the whole exchange, in _once
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
                follow_redirects=False,
                trust_env=not self._local,
            )
        return self._http

    def _count_retry(self, state: tenacity.RetryCallState) -> None:
        self.counts["retries"] += 1

    def _failed(self, failure: EndpointFailure, seconds: float) -> Reply:
        self.counts["failures"] += 1
        detail = failure.detail if self._key is None else failure.detail.replace(self._key, "[key]")
        detail = escaped(detail)[:300]
        if self._outage == "stop" and failure.reason in _SETUP:
            raise Abort(f"{self.base_url}#{self.model} refuses: {failure.reason}: {detail}")
        if self._outage == "stop" and failure.again:
            raise RetryLater(failure.reason, f"{self.base_url}#{self.model}: {detail}", failure.after_s)
        return Reply(error=f"{failure.reason}: {detail}" if detail else failure.reason, seconds=seconds)


def endpoint_url(text: str) -> tuple[str, bool]:
    """(base URL without a trailing slash, whether it is this machine).

    Raises:
        Abort: says what is wrong, without repeating credentials.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Abort("the endpoint's URL cannot be read") from error
    if parts.username is not None or parts.password is not None:
        raise Abort("the endpoint's URL holds credentials; put the key into an environment variable and name that")
    if parts.scheme not in ("http", "https") or not host or not text.isascii() or not text.isprintable():
        raise Abort("an endpoint's URL is http://HOST[:PORT][/v1] or https://...")
    if parts.query or parts.fragment or " " in text:
        raise Abort("an endpoint's URL has no query and no blanks")
    shown = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{path}", host in _LOCAL


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise Abort(f"the environment variable {variable} for the endpoint's key is not set")
    if not _KEY.fullmatch(key):
        raise Abort(f"the environment variable {variable} holds characters that no key has")
    return key


def _pause(state: tenacity.RetryCallState, seed: int) -> float:
    """Seconds before the next attempt: what the server asked for, else 0.5, 1, 2, 4, 8 s less up to a quarter.

    The share is drawn from the turn's seed, so that requests which failed together do not come back together.
    """
    failure = state.outcome.exception() if state.outcome is not None else None
    share = int(sha256_hex(f"{seed}:{state.attempt_number}".encode())[:4], 16) / 0x10000
    if isinstance(failure, EndpointFailure) and failure.after_s is not None:
        return failure.after_s * (1 + share / 10)
    return float(min(BACKOFF_S * 2.0 ** (state.attempt_number - 1), LONGEST_BACKOFF_S) * (1 - share / 4))
