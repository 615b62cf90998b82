"""S3: how it is reached, and its errors as what the runner does with them.

Three libraries talk to it: boto3 (small files, conditional puts), pyarrow (Parquet, raw days) and deltalake (logs). All
are pointed at the same place by ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL`` and ``AWS_REGION``; credentials come
from the usual variables, files and roles, never from a URI.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from trajectory_platform.errors import Abort, FailPartition, PlatformError, RejectRow, RetryLater
from trajectory_platform.identity import parse_utc

if TYPE_CHECKING:
    import pyarrow.fs

T = TypeVar("T")
TRIES = 2  # a storage call that may pass is tried once more, signed anew; never endlessly
CONNECT_S, ANSWER_S = 10, 60

_SKEW_CODES = ("RequestTimeTooSkewed", "RequestExpired")
_BUSY_CODES = ("SlowDown", "TooManyRequests", "Throttling", "RequestLimitExceeded")
_REFUSED_CODES = ("AccessDenied", "ACCESS_DENIED", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
_NO_BUCKET = ("NoSuchBucket", "NO_SUCH_BUCKET")  # boto3 and deltalake; pyarrow
_NO_CREDENTIALS = (
    *("Unable to locate credentials", "Partial credentials", "CredentialsNotLoaded", "no providers in"),
    *("while loading credentials", "failed to load IMDS", "config profile"),  # deltalake; a profile that is not there
)
_OTHER_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint", "Received redirect")
_STATUS = re.compile(
    r"HTTP(?: status(?: code)?)? ?:? ?(\d{3})|HTTPCode[:= ]+(\d{3})|\b([45]\d\d) (?:[A-Z][a-z]+ ?)+|status code (\d{3})"
)
_OF_STORAGE = re.compile(
    r"S3 error|AWS Error|object.?store|Object at location|error sending request|Error performing [A-Z]+ https?://"
    r"|while loading credentials|failed to load IMDS|Received redirect without LOCATION",
    re.IGNORECASE,
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Place(NamedTuple):
    """Where S3 is: its region, and the URL of a server other than Amazon's."""

    region: str
    endpoint: str | None

    @property
    def plain_http(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http://")


def place() -> Place:
    """The place that the environment names."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    return Place(region, endpoint.rstrip("/") or None)


def connect_s3() -> pyarrow.fs.S3FileSystem:
    """An S3 file system of the place, with bounded waiting."""
    import pyarrow.fs

    where = place()
    options: dict[str, Any] = {"region": where.region}
    if where.endpoint:
        options["scheme"], _, options["endpoint_override"] = where.endpoint.partition("://")
    return pyarrow.fs.S3FileSystem(connect_timeout=CONNECT_S, request_timeout=ANSWER_S, **options)


def assert_installed() -> None:
    """Raises Abort where boto3 is not installed."""
    if importlib.util.find_spec("boto3") is None:
        raise Abort("a lake on s3:// needs boto3: pip install 'trajectory-platform[deploy]'")


def client() -> Any:
    """A boto3 client of the place; one for each process, as its connections do not survive a fork."""
    return _client(os.getpid(), place(), os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_PROFILE"))


@cache
def _client(_process: int, where: Place, _key: str | None, _profile: str | None) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=ANSWER_S,
        retries={"mode": "standard", "total_max_attempts": 4},
        max_pool_connections=32,
        s3={"addressing_style": "path" if where.endpoint else "auto"},
    )
    # a session of its own: the default one is not safe for several threads
    return boto3.session.Session().client(
        "s3", region_name=where.region, endpoint_url=where.endpoint, config=config, use_ssl=not where.plain_http
    )


def delta_options() -> dict[str, str]:
    """Options by which deltalake reaches the place and puts a log entry only where none is yet."""
    where = place()
    options = {
        "aws_region": where.region,
        "aws_conditional_put": "etag",
        "connect_timeout": f"{CONNECT_S} seconds",
        "timeout": f"{ANSWER_S} seconds",
        "max_retries": "4",
        "retry_timeout": "60 seconds",
    }
    if where.endpoint:
        options["aws_endpoint"] = where.endpoint
    if where.plain_http:
        options["aws_allow_http"] = "true"
    return options


def assert_credentials(root: str) -> None:
    """Some credentials are found. Asked before deltalake is, which searches longer and logs each place without any.

    Raises:
        Abort: there are none, or the profile is not there.
    """
    from botocore.exceptions import BotoCoreError

    try:
        found = _has_credentials(os.getpid(), os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_PROFILE"))
    except BotoCoreError as error:
        raise Abort(f"no credentials for {root!a}: {error}; check the AWS_* variables") from error
    if not found:
        _has_credentials.cache_clear()  # a role may be given to the machine while this process runs
        raise Abort(f"no credentials for {root!a}: set the AWS_* variables, a profile or a role")


@cache
def _has_credentials(_process: int, _key: str | None, _profile: str | None) -> bool:
    import boto3

    return boto3.session.Session().get_credentials() is not None


def attempt(call: Callable[[], T], *, what: str) -> T:
    """Run a storage call at most twice; errors come out classified (each try is signed anew)."""
    for number in range(1, TRIES + 1):
        try:
            return call()
        except (OSError, ValueError) as error:
            classified = classify_storage_error(error, what=what)
            if number == TRIES or not isinstance(classified, RetryLater):
                raise classified from error
    raise AssertionError("unreachable: the last try returns or raises")


def classify_storage_error(error: BaseException | Mapping[str, Any], *, what: str = "") -> PlatformError:
    """A storage error as what the runner does with it.

    Args:
        error: an exception of pyarrow, boto3 or deltalake, or a mapping ``{status, code, message, request_time,
            server_time}`` of an HTTP answer.
        what: the object asked for, for the message.

    Returns:
        ``RetryLater`` (``clock_skew`` with the offset in words, ``rate_limited``, ``storage_unavailable``),
        ``RejectRow("not_found")``, or ``Abort`` where credentials are refused or the bucket does not exist.
    """
    answer = error if isinstance(error, Mapping) else _answer_of(error)
    if answer is not None:
        code, status, text = str(answer.get("code") or ""), answer.get("status"), str(answer.get("message") or "")
        offset = _offset_s(answer.get("request_time"), answer.get("server_time"))
    else:
        text = storage_text(error) if isinstance(error, BaseException) else ""
        code = text
        found = _STATUS.search(text)
        status = int(next(group for group in found.groups() if group)) if found else None
        offset = _offset_in_text(text)
    if any(name in code for name in _SKEW_CODES):
        return RetryLater("clock_skew", _skew_words(offset), None)
    if any(name in code for name in _BUSY_CODES) or status in (429, 503):
        return RetryLater("rate_limited", f"storage asks to slow down: {what!a}; try again later", 5.0)
    if any(name in code for name in _NO_BUCKET):
        return Abort(f"the bucket of {what!a} does not exist: create it, or check lake_uri and data_root")
    if any(name in code or name in text for name in _OTHER_REGION):
        return Abort(f"{what!a} lies in another region than {place().region!a}: set AWS_REGION to the bucket's")
    if isinstance(error, FileNotFoundError) or status == 404 or "NoSuchKey" in code:
        return RejectRow("not_found", f"{what!a}")
    if status in (401, 403) or any(name in code for name in _REFUSED_CODES):
        return Abort(f"storage refuses access to {what!a}: check the AWS_* variables")
    if any(words in text for words in _NO_CREDENTIALS):
        return Abort(f"no credentials for {what!a}: set the AWS_* variables, a profile or a role")
    return RetryLater("storage_unavailable", f"{what!a}: {text[:300]}; try again when the store answers", 30.0)


def lake_error(error: BaseException, *, doing: str, root: str) -> PlatformError:
    """An error that ended something the lake was doing, classified; what is not of the storage is the day's.

    Args:
        doing: the words in front, e.g. ``raw_traces 2026-03-01 was not published``.
        root: the lake, ``s3://bucket/prefix``.
    """
    text = storage_text(error)
    if any(name in text for name in _NO_BUCKET):
        bucket = root.removeprefix("s3://").partition("/")[0]
        return Abort(f"the bucket {bucket!a} of the lake does not exist: create it, or check the lake_uri {root}")
    of_storage = _answer_of(error) is not None or type(error).__module__.startswith("botocore")
    if not of_storage and not _OF_STORAGE.search(text):
        return FailPartition(f"{doing}: {text[:300]}")
    classified = classify_storage_error(error, what=root)
    if isinstance(classified, RetryLater):
        return RetryLater(classified.reason, f"{doing}: {classified.detail}", classified.after_s)
    if isinstance(classified, RejectRow):
        return FailPartition(f"{doing}: {text[:300]}")
    return Abort(f"{doing}: {classified}")


def storage_text(error: BaseException) -> str:
    """What went wrong on one line: of the nested lines of the Rust libraries the outermost and the innermost."""
    lines = [line.strip(" \t\u21b3") for line in _COLOURS.sub("", str(error)).strip().splitlines()]
    lines = [line for line in lines if line]
    if not lines:
        return type(error).__name__
    picked = lines[0] if len(lines) == 1 else f"{lines[0]}: {' '.join(lines[1:])}"
    code = re.search(r"<Code>([^<]+)</Code>", picked)
    return f"{code[1]}: {picked}" if code else picked


def _answer_of(error: BaseException) -> dict[str, Any] | None:
    """The answer inside an error of boto3."""
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping) or "Error" not in response:
        return None
    told = response["Error"]
    return {
        "status": response.get("ResponseMetadata", {}).get("HTTPStatusCode"),
        "code": told.get("Code"),
        "message": f"{told.get('Code')}: {told.get('Message')}",
        "request_time": told.get("RequestTime"),
        "server_time": told.get("ServerTime"),
    }


def _offset_s(request_time: Any, server_time: Any) -> float | None:
    """Seconds by which the server's clock is ahead of the request's, or None."""
    asked, answered = parse_utc(request_time), parse_utc(server_time)
    return None if asked is None or answered is None else (answered - asked).total_seconds()


def _offset_in_text(text: str) -> float | None:
    request = re.search(r"RequestTime\W+(\d{8}T\d{6}Z)", text)
    server = re.search(r"ServerTime\W+(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)", text)
    return _offset_s(request.group(1), server.group(1)) if request and server else None


def _skew_words(offset: float | None) -> str:
    advice = (
        "the clocks differ by more than the 15 minutes that are allowed; credentials are not at fault; set the clock"
    )
    if offset is None:
        return f"clock skew: {advice}"
    seconds = abs(round(offset))
    side = "behind" if offset > 0 else "ahead of"
    return (
        f"clock skew: this machine's clock is {seconds // 60} min {seconds % 60} s {side} the server's "
        f"(offset_s={round(offset)}); {advice}"
    )
