"""The services of ``docker/compose.yaml`` as processes of this machine, for want of a container engine.

Command, environment and health check of every service are read out of the compose file, the environment and the files
of the image out of the Dockerfile, the names of the secrets out of ``.env.example``. Replaced are only host names,
ports, secrets and the folder ``/platform``. Where the tests run as root with an interpreter that others may use, the
services run as user 10001 without any privilege, and may write only where compose gives them a volume or a tmpfs.

Postgres is a real one, the object store is moto's (``s3_server``) in place of MinIO, so the commands of these two
images are not run.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from trajectory_platform_tests import s3_server
from trajectory_platform_tests.defs.postgres_server import PASSWORD, Postgres, postgres_server

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKER = REPOSITORY / "docker"
SECRETS = ("POSTGRES_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY", "POOL_KEY")
STORES = ("postgres", "object-store")
MARK = "TRAJECTORY_PLATFORM_TESTS_STACK"  # in the environment of every process of a stack, and of what those start
USER = 10001  # of the image
_DROP = f"setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs --bounding-set=-all"
_OPEN = all(path.stat().st_mode & 0o001 for path in Path(sys.executable).resolve().parents)  # not below /root
PREFIX = tuple(_DROP.split()) if os.geteuid() == 0 and _OPEN else ()
_MERGED = re.compile(r"\$\{([A-Z0-9_]+)(?::([-?])([^}]*))?\}")


def interpolated(text: str, values: Mapping[str, str]) -> str:
    """``${NAME}``, ``${NAME:-default}`` and ``${NAME:?message}`` as compose replaces them."""

    def value(found: re.Match[str]) -> str:
        name, sign, rest = found[1], found[2], found[3]
        if values.get(name):
            return values[name]
        assert sign != "?", f"{name} has no value: {rest}"
        return rest or ""

    return _MERGED.sub(value, text)


def compose_services(values: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The services with their anchors and variables resolved."""

    def resolved(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: resolved(value) for key, value in node.items()}
        if isinstance(node, list):
            return [resolved(value) for value in node]
        return interpolated(node, values) if isinstance(node, str) else node

    return dict(resolved(yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))["services"]))


def dotenv(**given: str) -> dict[str, str]:
    """What a user has in ``docker/.env``: the example with random secrets."""
    lines = (DOCKER / ".env.example").read_text("utf-8").splitlines()
    example = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {**example, **{name: secrets.token_hex(24) for name in SECRETS}, **given}


def image_environment() -> dict[str, str]:
    """The ENV of the CPU image, without its PATH."""
    recipe = (DOCKER / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    stage = recipe.split(" AS cpu\n")[1].split("\nFROM ")[0]
    pairs = [word for line in stage.splitlines() if line.startswith("ENV ") for word in shlex.split(line)[1:]]
    return {name: value for name, value in (pair.split("=", 1) for pair in pairs) if name != "PATH"}


def place_image_files(root: Path) -> None:
    """The folders and files that the CPU image holds below ``/platform``."""
    for name in ("data", "checkpoints", "dagster_home"):
        (root / name).mkdir(parents=True)
    for source, target in re.findall(r"^COPY (docker/\S+) /platform/(\S+)$", (DOCKER / "Dockerfile").read_text(), re.M):
        shutil.copy(REPOSITORY / source, root / target)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Started:
    """A service that was started. ``seconds`` is how long its health check took to succeed, ``resident_mb`` what it and
    its children held then."""

    process: subprocess.Popen[bytes] | None
    log: Path
    since: float
    seconds: float | None = None
    resident_mb: int | None = None


@dataclass
class Stack:
    """The services of one compose project. Everything they write is below ``folder``."""

    folder: Path
    values: dict[str, str]
    extra: dict[str, str]
    postgres: Postgres
    store: s3_server.Server
    ports: dict[str, int] = field(default_factory=dict)
    started: dict[str, Started] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.services = compose_services(self.values)
        self.mark = secrets.token_hex(8)
        self.ports |= {name: free_port() for name in ("4000", "3000", "5000", "5632")}
        place_image_files(self.folder / "platform")
        workspace = self.folder / "platform" / "workspace.yaml"
        workspace.write_text(workspace.read_text().replace("port: 4000", f"port: {self.ports['4000']}"))
        instance = self.folder / "platform" / "dagster_home" / "dagster.yaml"
        staged = (
            f"\\g<0>\n    local_dir: {self.folder}/tmp"  # /tmp of a container is its own, that of this machine is not
        )
        instance.write_text(re.sub(r"^    prefix: compute-logs$", staged, instance.read_text(), flags=re.M))
        (self.folder / "home").mkdir()  # as in the container: there, and not to be written to
        self.writable = [self.folder / "tmp", *(self.folder / "platform" / name for name in ("data", "checkpoints"))]
        for place in self.writable:
            place.mkdir(exist_ok=True)
            if PREFIX:
                os.chown(place, USER, USER)
        self.placed = set((self.folder / "platform").rglob("*"))

    def url(self, service: str) -> str:
        """Where a service with a published port answers."""
        (port,) = (entry.rsplit(":", 1)[1] for entry in self.services[service]["ports"])
        return f"http://127.0.0.1:{self.ports[port]}"

    def here(self, text: str) -> str:
        """Host names, ports and folders of the containers as they are on this machine."""
        text = text.replace("http://object-store:9000", self.store.url)
        text = text.replace("@postgres:5432/", f"@127.0.0.1:{self.postgres.port}/")
        for host in ("code", "mlflow", "127.0.0.1", "localhost"):
            for port, real in self.ports.items():
                text = text.replace(f"{host}:{port}", f"127.0.0.1:{real}")
        text = re.sub(r"^(--port=)?(4000|3000|5000|5632)$", lambda m: f"{m[1] or ''}{self.ports[m[2]]}", text)
        text = text.replace("0.0.0.0", "127.0.0.1").replace("/platform/", f"{self.folder}/platform/")
        return str(self.folder / "tmp") if text == "/tmp" else text

    def environment(self, service: str) -> dict[str, str]:
        """What the processes of a service see: nothing of this machine's own environment."""
        given = {name: self.here(str(value)) for name, value in self.services[service].get("environment", {}).items()}
        given |= {name: value for name, value in _ADDRESSES.items() if name in given}
        if "DAGSTER_POSTGRES_PORT" in given:
            given["DAGSTER_POSTGRES_PORT"] = str(self.postgres.port)
        image = {name: self.here(f"{value}/").rstrip("/") for name, value in image_environment().items()}
        python = str(Path(sys.executable).parent)
        base = {"PATH": f"{python}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder / "home"), MARK: self.mark}
        few = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(self.folder / "tmp")}
        found = {**base, **image, **few, **given}
        if self.services[service].get("image", "").startswith("trajectory-platform:"):
            found |= self.extra
        return found

    def run(
        self, service: str, *command: str, timeout_s: float = 300, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command to its end as ``docker compose run SERVICE COMMAND`` runs it; none: the service's own."""
        chosen = list(command) or [self.here(str(word)) for word in self.services[service]["command"]]
        return subprocess.run(
            _as_user(chosen),
            env={**self.environment(service), **(env or {})},
            cwd=self.folder / "platform",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(self, service: str, more: Mapping[str, str] | None = None) -> None:
        """Start a service that stays up; ``more`` is added to its environment."""
        command = [self.here(str(word)) for word in self.services[service]["command"]]
        log = self.folder / f"{service}.log"
        with log.open("ab") as stream:
            process = subprocess.Popen(
                _as_user(command),
                env={**self.environment(service), **(more or {})},
                cwd=self.folder / "platform",
                stdout=stream,
                stderr=stream,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.started[service] = Started(process, log, time.monotonic())

    def check(self, service: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """The health check of a service, once."""
        kind, *command = [self.here(str(word)) for word in self.services[service]["healthcheck"]["test"]]
        assert kind == "CMD", service
        environment = {**self.environment(service), **(more or {})}
        if service == "postgres":
            environment |= {"PGHOST": "127.0.0.1", "PGPORT": str(self.postgres.port)}
            command[0] = str(self.postgres.bin / command[0])
        return subprocess.run(
            _as_user(command),
            env=environment,
            cwd=self.folder / "platform",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def wait(self, service: str, within_s: float = 300, more: Mapping[str, str] | None = None) -> float:
        """Wait until a service is healthy; the seconds since its start."""
        state = self.started[service]
        while (found := self.check(service, more)).returncode != 0:
            gone = state.process is not None and state.process.poll() is not None
            late = time.monotonic() - state.since > within_s
            assert not (gone or late), f"{service} is not healthy: {found.stderr[-600:]}\n{self.log(service)[-3000:]}"
            time.sleep(0.5)
        state.seconds = time.monotonic() - state.since
        state.resident_mb = self.resident_mb(service) if state.process else None
        return state.seconds

    def up(self, services: Sequence[str]) -> None:
        """Start services one after the other, each once what it depends on is healthy or has ended well."""
        for service in services:
            for needed, condition in self.services[service].get("depends_on", {}).items():
                if needed == "volumes":
                    continue  # gives the volumes to user 10001: here one user owns everything
                if condition["condition"] == "service_completed_successfully":
                    done = self.run(needed)
                    assert done.returncode == 0, (needed, done.stderr[-2000:])
                elif needed not in STORES:
                    self.wait(needed)
            self.start(service)

    def stop(self, service: str, how: int = signal.SIGTERM) -> None:
        """End a service and its group; wait for it."""
        process = self.started[service].process
        assert process is not None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def log(self, service: str) -> str:
        """What a service printed."""
        return self.started[service].log.read_text("utf-8", "replace")

    def resident_mb(self, service: str) -> int:
        """Resident memory of a service and what it started."""
        process = self.started[service].process
        assert process is not None
        total = 0
        for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            with suppress(psutil.Error):
                total += one.memory_info().rss
        return total >> 20

    def end(self) -> None:
        """End everything, also what a service left behind in a session of its own."""
        for service, state in self.started.items():
            if state.process is not None:
                self.stop(service, signal.SIGKILL)
        for process in leftovers(self.mark):
            with suppress(psutil.Error):
                process.kill()

    def s3(self) -> Any:
        """A client of the object store with the platform's own credentials."""
        import boto3

        given = self.environment("code")
        return boto3.client(
            "s3", endpoint_url=given["AWS_ENDPOINT_URL"], region_name=given["AWS_REGION"],
            aws_access_key_id=given["AWS_ACCESS_KEY_ID"], aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        )  # fmt: skip

    def postgres_rows(self, table: str) -> int:
        """Rows of a table of Dagster's database, asked past Dagster."""
        return int(self.sql(f"select count(*) from {table}")[0][0])

    def postgres_tool(self, name: str, *arguments: str) -> None:
        """``pg_dump``, ``pg_restore``, ``createdb`` as the database's user."""
        server = ["-h", "127.0.0.1", "-p", str(self.postgres.port), "-U", "dagster"]
        environment = {"PGPASSWORD": self.values["POSTGRES_PASSWORD"], "LC_ALL": "C"}
        command = [str(self.postgres.bin / name), *server, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    def sql(self, statement: str, database: str = "dagster") -> list[tuple[Any, ...]]:
        """A statement in a database of the stack, as the user the services are."""
        return sql(self.postgres, self.values["POSTGRES_PASSWORD"], database, statement)


# Containers go by service names, processes here all by the loopback address.
_ADDRESSES = {"DAGSTER_POSTGRES_HOST": "127.0.0.1", "TRAJECTORY_PLATFORM_CODE_HOST": "127.0.0.1"}


def _as_user(command: Sequence[str]) -> list[str]:
    """The command without root; a program of this interpreter by its full path, as no other user need find it."""
    if command[0] == "trajectory-platform":
        command = ["python", "-m", "trajectory_platform.cli", *command[1:]]  # a checkout has no script of it
    beside = Path(sys.executable).parent / command[0]
    return [*PREFIX, str(beside) if beside.exists() else command[0], *command[1:]]


def leftovers(mark: str) -> list[psutil.Process]:
    """Processes whose environment carries the mark of a stack."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def sql(postgres: Postgres, password: str, database: str, *statements: str) -> list[tuple[Any, ...]]:
    """Statements of their own transaction each; the rows of the last."""
    import psycopg2

    connection = psycopg2.connect(
        host="127.0.0.1", port=postgres.port, user="dagster", password=password, dbname=database
    )
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def initialise(postgres: Postgres, service: Mapping[str, Any]) -> None:
    """What the Postgres image does on an empty volume: user, password, database, then the scripts beside it."""
    given = service["environment"]
    assert given["POSTGRES_USER"] == "dagster", "the test's server was made for this user"
    (mounted,) = (one for one in service["volumes"] if ":/docker-entrypoint-initdb.d:" in one)
    scripts = sorted((DOCKER / mounted.split(":")[0]).glob("*.sql"))
    sql(
        postgres, PASSWORD, "postgres",
        f"create database {given['POSTGRES_DB']}", f"alter user dagster password '{given['POSTGRES_PASSWORD']}'",
    )  # fmt: skip
    for script in scripts:
        plain = re.sub(r"--.*", "", script.read_text("utf-8"))
        statements = [one for one in plain.split(";") if one.strip()]
        sql(postgres, given["POSTGRES_PASSWORD"], given["POSTGRES_DB"], *statements)


@contextmanager
def stores(*, extra: Mapping[str, str] | None = None, **values: str) -> Iterator[Stack]:
    """A stack of which the two stores run; the caller starts what else it needs. All of it ends with the block.

    Args:
        extra: more environment for the services of the platform's image, as a user's override file gives it.
        values: lines of ``docker/.env``.
    """
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="stack-", dir="/tmp"))  # below pytest's own folders no other user may go
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        chosen = dotenv(**values)
        began = time.monotonic()
        postgres = stack.enter_context(postgres_server())
        initialise(postgres, compose_services(chosen)["postgres"])
        store = stack.enter_context(s3_server.running())
        built = Stack(folder, chosen, dict(extra or {}), postgres, store)
        built.started |= {name: Started(None, folder / "none", began) for name in STORES}
        built.wait("postgres")
        stack.callback(built.end)
        yield built
