"""What each path of the local server of the public API answers: the view of a moment, in the models of oro-sdk."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trajectory_platform.arena.oro_server_clock import ServerClock
from trajectory_platform.arena.oro_server_faults import Script
from trajectory_platform.arena.oro_server_gate import RequestLog, expired_xml
from trajectory_platform.arena.oro_server_history import History, is_uuid, text_of
from trajectory_platform.arena.oro_server_view import View, page
from trajectory_platform.identity import parse_utc

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from trajectory_platform.arena.oro_server_history import Row, Run

_KEY = b"arena"  # signs links of this server only; it protects simulated files
ARTIFACT_TYPES = ("AGENT_CODE", "EVAL_LOGS_BUNDLE", "EVAL_PROBLEM_LOGS", "REASONING_DETAILS")


class _Refused(Exception):
    """An error answer of the API: ``{detail, error_code}`` (domain 1.10)."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


class Endpoints:
    """What each path answers."""

    def __init__(
        self, history: History, clock: ServerClock, log: RequestLog, script: Script, link_seconds: int
    ) -> None:
        self.history, self.clock, self.log, self.script = history, clock, log, script
        self.link_seconds = link_seconds

    def routes(self) -> list[Route]:
        from starlette.routing import Route

        def public(path: str, answer: Callable[[Request, View], Any]) -> Route:
            return Route(f"/v1/public/{path}", self._json(answer), methods=["GET"])

        return [
            public("races/current", self.race_current),
            public("races/history", self.race_history),
            public("races/{race_id}", self.race_detail),
            public("agent-versions/{version_id}", self.version),
            public("agent-versions/{version_id}/status", self.version_status),
            public("agent-versions/{version_id}/runs", self.version_runs),
            public("agent-versions/{version_id}/problems", self.version_problems),
            public("evaluation-runs/{run_id}", self.evaluation_run),
            public("evaluations/running", self.running),
            public("evaluations/pending", self.pending),
            public("suites", self.suites),
            public("suites/current", self.suite_current),
            public("suites/{suite_id}/problems", self.suite_problems),
            public("leaderboard", self.leaderboard),
            public("top", self.top),
            public("validators", self.validators),
            public("trajectories/history", self.trajectories),
            Route("/v1/public/artifacts/download-url", self.download_url, methods=["POST"]),
            Route("/storage/{kind}/{name:path}", self.storage, methods=["GET"]),
            Route("/_arena/facts", self.facts, methods=["GET"]),
            Route("/_arena/clock", self.set_clock, methods=["GET", "POST"]),
        ]

    def _json(self, answer: Callable[[Request, View], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                return _json(answer(request, View(self.history, self.clock.now())))
            except _Refused as error:
                return _refusal(error)

        return endpoint

    # ------------------------------------------------------------------------------------------------ races

    def race_current(self, request: Request, view: View) -> Any:
        race = view.current_race()
        if race is None:
            return _through("RaceCurrentResponse", {"race": None, "qualifiers": []})
        return _through("RaceCurrentResponse", {"race": view.race_row(race), "qualifiers": view.qualifiers(race)})

    def race_history(self, request: Request, view: View) -> Any:
        limit, offset = _page(request, 20, most=100)
        rows = view.past_races(_number(request, "suite_id", None))
        shift = _rule(request, "paging_shift")
        if shift is not None and offset == 0:
            rows = rows[shift["newest"] :]  # these arrive after the first page was read
        shown = {"total": len(rows), "limit": limit, "offset": offset, "races": page(rows, limit, offset)}
        return _through("RaceHistoryResponse", shown)

    def race_detail(self, request: Request, view: View) -> Any:
        race = view.race(_id(request, "race_id"))
        if race is None:
            raise _Refused(404, "RACE_NOT_FOUND", "Race not found")
        return _through("RaceDetailResponse", {"race": view.race_row(race), "qualifiers": view.qualifiers(race)})

    # --------------------------------------------------------------------------------------- versions, runs

    def version(self, request: Request, view: View) -> Any:
        row = self._version(view, _id(request, "version_id"))
        if not view.released(row):
            raise _Refused(404, "ARTIFACT_NOT_RELEASED", "Agent version is not released yet")
        return _through("AgentVersionPublic", view.version_row(row))

    def version_status(self, request: Request, view: View) -> Any:
        return _through("AgentVersionStatus", view.version_status(self._version(view, _id(request, "version_id"))))

    def version_runs(self, request: Request, view: View) -> Any:
        name = str(self._version(view, _id(request, "version_id"))["agent_version_id"])
        return [_through("EvaluationRunPublic", view.run_row(run)) for run in view.runs_of(name)]

    def version_problems(self, request: Request, view: View) -> Any:
        row = self._version(view, _id(request, "version_id"))
        race_id = request.query_params.get("race_id")
        if race_id is not None and not is_uuid(race_id):
            raise _invalid("race_id", "Input should be a valid UUID")
        problems = view.problems(str(row["agent_version_id"]), request.query_params.get("phase"), race_id)
        shown = {"agent_version_id": row["agent_version_id"], "suite_id": row.get("suite_id"), "problems": problems}
        return _through("AgentVersionProblemsResponse", {**shown, "generated_results": [], "qualifying_tasks": []})

    def evaluation_run(self, request: Request, view: View) -> Any:
        return _through("EvaluationRunDetail", view.run_detail(self._run(view, _id(request, "run_id"))))

    def running(self, request: Request, view: View) -> Any:
        return [_through("RunningEvaluation", row) for row in view.running()]

    def pending(self, request: Request, view: View) -> Any:
        limit, offset = _page(request, 100, most=500)
        rows = view.pending(_number(request, "suite_id", None))
        summary = {
            "total_pending": len(rows),
            "total_runs_needed": sum(row["remaining"] for row in rows),
            "total_runs_active": sum(row["active_runs"] for row in rows),
        }
        return _through("PendingEvaluationsResponse", {"summary": summary, "items": page(rows, limit, offset)})

    # ------------------------------------------------------------------------------- suites, ranks and counts

    def suites(self, request: Request, view: View) -> Any:
        return [_through("SuitePublic", row) for row in view.suites()]

    def suite_current(self, request: Request, view: View) -> Any:
        return _through("SuitePublic", self._suite(view, None))

    def suite_problems(self, request: Request, view: View) -> Any:
        text = request.path_params["suite_id"]
        if not text.isdigit():
            raise _invalid("suite_id", "Input should be a valid integer")
        head = self._suite(view, int(text))
        problems = self.history.suites[head["suite_id"]][2]
        if request.query_params.get("include_embeddings", "false").lower() != "true":
            problems = [{**one, "metadata": _without_embedding(one.get("metadata"))} for one in problems]
        return _through("SuiteWithProblemsResponse", {"suite": head, "problems": problems, "qualifying_tasks": []})

    def leaderboard(self, request: Request, view: View) -> Any:
        limit, offset = _page(request, 100, most=500)
        head = self._suite(view, _number(request, "suite_id", None))
        score_type = request.query_params.get("score_type", "qualifying")
        rows = view.leaderboard(head["suite_id"], score_type, request.query_params.get("q", ""))
        shown = {
            "total": len(rows),
            "limit": limit,
            "offset": offset,
            "suite": head,
            "entries": page(rows, limit, offset),
            "unique_miners": len({row["miner_hotkey"] for row in rows}),
        }
        return _through("LeaderboardResponse", shown)

    def top(self, request: Request, view: View) -> Any:
        head, name = self._suite(view, None), view.top()
        row = self.history.versions.get(name or "", {})
        shown = {"suite_id": head["suite_id"], "computed_at": text_of(view.now), "top_agent_version_id": name}
        return _through("TopAgentResponse", shown | {"top_miner_hotkey": row.get("miner_hotkey")})

    def validators(self, request: Request, view: View) -> Any:
        return [_through("ValidatorPublic", row) for row in view.validators()]

    def trajectories(self, request: Request, view: View) -> Any:
        if _rule(request, "cold_history") is not None:
            return _through("TrajectoryHistoryResponse", {"series": [], "total": None})
        return _through("TrajectoryHistoryResponse", view.trajectory_history())

    # -------------------------------------------------------------------------------------------- artifacts

    async def download_url(self, request: Request) -> Response:
        try:
            body = await request.json()
        except ValueError:
            body = None
        try:
            if not isinstance(body, dict):
                raise _invalid("body", "Input should be a valid dictionary")
            name = self._object(View(self.history, self.clock.now()), body)
        except _Refused as error:
            return _refusal(error)
        old = -2 * self.link_seconds if _rule(request, "expired_link") is not None else 0
        expires = datetime.now(UTC) + timedelta(seconds=self.link_seconds + old)
        path = f"/storage/{quote(name)}"
        seconds = int(expires.timestamp())
        link = f"{request.base_url}".rstrip("/") + f"{path}?Expires={seconds}&Signature={_signature(path, seconds)}"
        shown = {"download_url": link, "expires_at": text_of(expires.replace(microsecond=0))}
        return _json(_through("ArtifactDownloadResponse", shown))

    def _object(self, view: View, body: dict[str, Any]) -> str:
        """The name in the store of what a request for a link asks for."""
        kind = body.get("artifact_type")
        if kind not in ARTIFACT_TYPES:
            raise _Refused(400, "INVALID_ARTIFACT_TYPE", "Unknown artifact type")
        for field in ("agent_version_id", "eval_run_id", "problem_id"):
            if not (is_uuid(body.get(field)) or (body.get(field) is None and field != "agent_version_id")):
                raise _invalid(field, "Input should be a valid UUID")
        version = self._version(view, body["agent_version_id"])
        if kind == "AGENT_CODE":
            if not view.released(version):
                raise _Refused(404, "ARTIFACT_NOT_RELEASED", "Agent code is not released yet")
            return f"code/{version['agent_version_id']}.py"
        if body.get("eval_run_id") is None:
            raise _Refused(400, "MISSING_PARAMETER", "eval_run_id is required")
        run = self._run(view, body["eval_run_id"])
        if run.version_id != version["agent_version_id"]:
            raise _Refused(404, "EVAL_RUN_NOT_FOUND", "Evaluation run not found")
        if view.in_flight(run):
            raise _Refused(403, "RACE_IN_FLIGHT", "Race artifacts are available when the race is complete")
        if kind == "EVAL_PROBLEM_LOGS" and body.get("problem_id") is None:
            raise _Refused(400, "MISSING_PARAMETER", "problem_id is required")
        if kind != "EVAL_PROBLEM_LOGS" or not view.artifact_there(run, body["problem_id"]):
            raise _Refused(404, "ARTIFACT_NOT_FOUND", "Artifact not found")
        return f"artifacts/{run.run_id}/{body['problem_id']}.json.gz"

    async def storage(self, request: Request) -> Response:
        """One object of the store, to whoever has a valid link to it."""
        from starlette.responses import Response

        expires, signature = request.query_params.get("Expires", ""), request.query_params.get("Signature", "")
        path = quote(request.url.path)
        good = expires.isdigit() and hmac.compare_digest(_signature(path, int(expires)), signature)
        if not good or int(expires) < datetime.now(UTC).timestamp():
            return Response(expired_xml(), 403, media_type="application/xml")
        kind, name = request.path_params["kind"], request.path_params["name"]
        if kind == "code":
            return Response(f"# code of agent version {name}\n".encode(), media_type="text/x-python")
        run, _, file = name.partition("/")
        found = self.history.artifacts.get((run, file.removesuffix(".json.gz")))
        if found is None:
            return Response(b"<Error><Code>NoSuchKey</Code></Error>", 404, media_type="application/xml")
        return Response(found.read_bytes(), media_type="application/gzip")

    # ------------------------------------------------------------------------------------------- for tests

    async def facts(self, request: Request) -> Response:
        facts = {"now": text_of(self.clock.now()), "days": [day.isoformat() for day in self.history.days]}
        return _json({**facts, **self.log.facts(), "hits": dict(sorted(self.script.hits.items()))})

    async def set_clock(self, request: Request) -> Response:
        if request.method == "POST":
            moment = parse_utc((await request.json()).get("at"))
            if moment is None:
                return _json({"detail": "at: a time is expected"}, 422)
            self.clock.set(moment)
        return _json({"now": text_of(self.clock.now())})

    # ------------------------------------------------------------------------------------------------ small

    def _version(self, view: View, name: str) -> Row:
        row = view.version(name)
        if row is None:
            raise _Refused(404, "AGENT_VERSION_NOT_FOUND", "Agent version not found")
        return row

    def _run(self, view: View, name: str) -> Run:
        run = view.run(name)
        if run is None:
            raise _Refused(404, "EVAL_RUN_NOT_FOUND", "Evaluation run not found")
        return run

    def _suite(self, view: View, number: int | None) -> Row:
        suites = view.suites()
        found = next((row for row in suites if number in (None, row["suite_id"])), None)
        if found is None:
            raise _Refused(404, "SUITE_NOT_FOUND", "Suite not found")
        return found


def _through(model: str, row: Row) -> Any:
    """A row as the SDK's model of it writes it: an answer that the SDK could not read fails here, not at a client."""
    from oro_sdk import models

    return getattr(models, model).from_dict(row).to_dict()


def _json(value: Any, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(json.dumps(value).encode(), status, media_type="application/json")


def _refusal(error: _Refused) -> Response:
    if error.status == 422:
        return _json({"detail": [{"loc": ["query", error.code], "msg": error.detail, "type": "value_error"}]}, 422)
    return _json({"detail": error.detail, "error_code": error.code}, error.status)


def _invalid(field: str, words: str) -> _Refused:
    return _Refused(422, field, words)


def _id(request: Request, name: str) -> str:
    value = str(request.path_params[name])
    if not is_uuid(value):
        raise _invalid(name, "Input should be a valid UUID")
    return value


def _number(request: Request, name: str, default: int | None) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal():
        raise _invalid(name, "Input should be a valid integer")
    return int(text)


def _page(request: Request, default: int, *, most: int) -> tuple[int, int]:
    """(limit, offset)."""
    limit, offset = _number(request, "limit", default), _number(request, "offset", 0)
    assert limit is not None and offset is not None
    if not 1 <= limit <= most:
        raise _invalid("limit", f"Input should be from 1 to {most}")
    return limit, offset


def _rule(request: Request, fault: str) -> dict[str, Any] | None:
    """The parameters of a fault of the script that hits this request, or None."""
    rules = request.scope.get("oro_rules") or ()
    return next((rule.parameters for rule in rules if rule.fault == fault), None)


def _signature(path: str, expires: int) -> str:
    return hmac.new(_KEY, f"{path}|{expires}".encode(), hashlib.sha256).hexdigest()


def _without_embedding(metadata: Any) -> dict[str, Any]:
    given = metadata if isinstance(metadata, dict) else {}
    return {name: value for name, value in given.items() if "embedding" not in name}
