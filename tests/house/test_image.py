"""The image holds what was chosen, byte for byte, and its containers may do no more than they need."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec

from tests.docker.compose_file import ROOT, dependencies, profiles, section, services
from tests.docker.compose_file import TEXT as COMPOSE

DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCK = (ROOT / "docker" / "requirements.lock").read_text()
NODES = {"broker": (1, 2, 3), "controller": (101, 102, 103)}
_NAME = re.compile(r"^[A-Za-z0-9._-]+")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_base_image_is_one_and_no_other() -> None:
    [pinned] = re.findall(r"^ARG BARNABAS_BASE_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", pinned)
    assert re.findall(r"^FROM (\S+)$", DOCKERFILE, re.MULTILINE) == ["${BARNABAS_BASE_IMAGE}"]
    assert f"${{BARNABAS_BASE_IMAGE:-{pinned}}}" in COMPOSE, "the two files name the same"


def test_everything_installed_is_known_by_its_hash() -> None:
    assert "--require-hashes --requirement requirements.lock" in DOCKERFILE
    assert "--no-deps --no-index --no-build-isolation" in DOCKERFILE, "the build itself fetches nothing"
    entries = [entry for entry in re.split(r"(?<!\\)\n", LOCK) if entry and not entry.startswith("#")]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==[^ ]+ \\\n +--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in LOCK, "the lock names no package host"


def test_dependencies_of_the_project_are_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *extras["page"], *extras["registry"], *extras["s3"]]
    wanted += project["build-system"]["requires"]
    locked = {canonical(name) for name in re.findall(r"^([a-z0-9._-]+)==", LOCK, re.MULTILINE)}
    missing = {canonical(match.group()) for each in wanted if (match := _NAME.match(each))} - locked
    assert missing == set(), "`make lock`"


def test_the_entrypoint_runs_modules_that_exist() -> None:
    modules = re.findall(r"module=(\S+) ;;", (ROOT / "docker" / "entrypoint").read_text())
    assert modules == ["barnabas.broker", "barnabas.kraft"]
    for module in modules:
        assert find_spec(f"{module}.__main__") is not None, module


def test_containers_can_write_to_their_volume_only_and_have_no_privilege() -> None:
    node = section("x-node")
    for line in ("read_only: true", "tmpfs: [/tmp]", "cap_drop: [ALL]", 'security_opt: ["no-new-privileges:true"]'):
        assert f"\n  {line}\n" in node, line
    for name in ("prometheus", "grafana"):
        assert "cap_drop: [ALL]" in section(name)
    assert "privileged: true" not in COMPOSE
    assert "cap_add" not in COMPOSE
    assert re.search(r"^USER barnabas$", DOCKERFILE, re.MULTILINE)


def test_services_are_restarted() -> None:
    for name in ("x-node", "prometheus", "grafana"):
        assert re.search(r"^ +restart: unless-stopped$", section(name), re.MULTILINE), name


def test_without_a_profile_the_six_nodes_start_and_with_secure_six_others() -> None:
    assert "COMPOSE_PROFILES=plain" in (ROOT / ".env").read_text().splitlines()
    nodes = [f"{kind}-{number}" for kind, numbers in NODES.items() for number in numbers]
    assert sorted(it for it in services() if "plain" in profiles(it)) == sorted(nodes)
    secure = [it for it in services() if "secure" in profiles(it)]
    assert sorted(secure) == sorted(["secure-files", "secure-users", *(f"secure-{node}" for node in nodes)])
    tiered = [it for it in services() if "s3" in profiles(it)]
    assert sorted(tiered) == sorted(["s3", "s3-bucket", *(f"s3-{node}" for node in nodes)])
    assert [it for it in services() if not profiles(it)] == []


def test_a_service_and_its_dependencies_share_their_profiles() -> None:
    needs = {name: dependencies(name) for name in services()}
    assert set(needs["secure-controller-101"]) == {"secure-files"}
    assert set(needs["broker-1"]) == {"controller-101", "controller-102", "controller-103"}
    for name, needed in needs.items():
        for each in needed:
            assert set(profiles(name)) <= set(profiles(each)), f"{name} needs {each}"
