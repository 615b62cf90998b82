"""The stores of docker/compose.yaml: the database its scripts make, the buckets its first service makes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trajectory_platform_tests.deploy.stack import Stack, interpolated, leftovers, stores

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    with stores() as started:
        yield started


def test_variables_are_replaced_as_compose_replaces_them() -> None:
    assert interpolated("a ${ONE:?needed} ${TWO:-b} ${THREE}", {"ONE": "1", "TWO": ""}) == "a 1 b "
    with pytest.raises(AssertionError, match="needed"):
        interpolated("${ONE:?needed}", {"ONE": ""})


def test_postgres_is_healthy_and_holds_both_databases(stack: Stack) -> None:
    assert stack.check("postgres").returncode == 0
    assert stack.sql("select current_database()") == [("dagster",)]
    assert stack.sql("select current_database()", "mlflow") == [("mlflow",)]


def test_buckets_are_made_once_and_left_alone_afterwards(stack: Stack) -> None:
    first, second = stack.run("buckets"), stack.run("buckets")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout
    made = {bucket["Name"] for bucket in stack.s3().list_buckets()["Buckets"]}
    code = stack.environment("code")
    used = {code["DAGSTER_COMPUTE_LOGS_BUCKET"]} | {
        code[f"TRAJECTORY_PLATFORM_{name}"].removeprefix("s3://").split("/")[0] for name in ("DATA_ROOT", "LAKE_URI")
    }
    artifacts = next(word for word in stack.services["mlflow"]["command"] if "s3://" in word)
    used.add(artifacts.split("s3://")[1].split("/")[0])
    assert used <= made


def test_every_service_gets_an_environment_of_its_own(stack: Stack) -> None:
    """No name of a container and no unresolved variable is left; the image's files are where the commands look."""
    for service in stack.services:
        words = [str(word) for word in stack.services[service].get("command", [])]
        for text in (*stack.environment(service).values(), *(stack.here(word) for word in words)):
            assert "${" not in text
            assert not any(f"{host}:" in text for host in ("object-store", "postgres", "code", "mlflow")), (
                service, text,
            )  # fmt: skip
    platform = stack.folder / "platform"
    assert {"workspace.yaml", "create_buckets.py"} <= {path.name for path in platform.iterdir()}
    assert (platform / "dagster_home" / "dagster.yaml").is_file()


def test_no_process_is_left_of_commands_that_ended(stack: Stack) -> None:
    assert leftovers(stack.mark) == []
