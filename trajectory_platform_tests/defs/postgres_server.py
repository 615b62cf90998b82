"""A real Postgres of this machine in a folder of its own, as an unprivileged user; skipped where there is none."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PASSWORD = "it's a: p@ss/word%"  # what a generated password may hold


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl: the newest installed, or what PATH leads to."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("initdb")
    return installed[-1].parent if installed else Path(found).resolve().parent if found else None


@dataclass(frozen=True)
class Postgres:
    """A running server. ``env`` is what ``docker/dagster.yaml`` reads."""

    folder: Path
    port: int
    bin: Path
    user: tuple[str, ...]  # command prefix that drops root

    @property
    def env(self) -> dict[str, str]:
        return {
            "DAGSTER_POSTGRES_HOST": "127.0.0.1",
            "DAGSTER_POSTGRES_PORT": str(self.port),
            "DAGSTER_POSTGRES_USER": "dagster",
            "DAGSTER_POSTGRES_PASSWORD": PASSWORD,
            "DAGSTER_POSTGRES_DB": "postgres",
        }

    def ctl(self, *action: str) -> None:
        """``pg_ctl`` on the server's folder; waits until it is done."""
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self.folder}"
        command = [*self.user, str(self.bin / "pg_ctl"), "-D", str(self.folder / "data"), "-w", "-t", "60"]
        log = ["-l", str(self.folder / "log"), "-o", options]
        subprocess.run([*command, *log, *action], check=True, capture_output=True, cwd=self.folder, env=_locale())

    def count(self, table: str) -> int:
        """Rows of a table, asked past Dagster."""
        import psycopg2

        with (
            psycopg2.connect(
                host="127.0.0.1", port=self.port, user="dagster", password=PASSWORD, dbname="postgres"
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"select count(*) from {table}")
            [(rows,)] = cursor.fetchall()
            return int(rows)


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Initialise, start, and at the end stop and remove it."""
    found = binaries()
    if found is None:
        pytest.skip("no Postgres server is installed (apt-get install postgresql)")
    account = "postgres" if "postgres" in {one.pw_name for one in pwd.getpwall()} else "nobody"
    drop = ("setpriv", f"--reuid={account}", f"--regid={pwd.getpwnam(account).pw_gid}", "--clear-groups")
    user = drop if os.geteuid() == 0 else ()
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))  # below pytest's own folders no other user may go
    try:
        (folder / "password").write_text(PASSWORD)
        if user:
            for path in (folder, folder / "password"):
                shutil.chown(path, account)
        subprocess.run(
            [*user, str(found / "initdb"), "-D", str(folder / "data"), "-U", "dagster", "--auth=scram-sha-256",
             f"--pwfile={folder / 'password'}", "-E", "UTF8", "--no-locale", "--no-sync"],
            check=True, capture_output=True, cwd=folder, env=_locale(),
        )  # fmt: skip
        server = Postgres(folder, _free_port(), found, user)
        server.ctl("start")
        try:
            yield server
        finally:
            server.ctl("stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _locale() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LC_ALL": "C"}
