"""Kafka's own StandardAuthorizer and ours decide alike, for the same reasons, and say so in the same words."""

from __future__ import annotations

import logging
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord
from tests.compat.java import FLAGS
from tests.kraft.authorizer.asking import Guard, request_of
from tests.kraft.authorizer.test_compiled import acl

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]

TOOLS = Path(__file__).parent / "java-tools"
ROUNDS, QUESTIONS = 300, 20
TYPES = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER)
OPERATIONS = [it for it in AclOperation if it >= AclOperation.ALL]
HOSTS = ("10.0.0.1", "10.0.0.2")


@pytest.fixture(scope="module")
def answers(libs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that answers questions."""
    target = tmp_path_factory.mktemp("classes")
    source = TOOLS / "AuthorizerAnswers.java"
    built = ["javac", "-d", str(target), "-cp", f"{libs}{os.sep}*", str(source)]
    subprocess.run(built, check=True, capture_output=True, timeout=60)
    flags = [it for it in FLAGS if "log4j2" not in it]
    path = f"{target}{os.pathsep}{libs}{os.sep}*"
    return ["java", *flags, f"-Dlog4j2.configurationFile={TOOLS / 'audit.properties'}", "-cp", path, source.stem]


def drawn_acls(chance: random.Random, names: list[str]) -> Iterator[AccessControlEntryRecord]:
    for _ in range(chance.randint(0, 14)):
        yield acl(
            chance.choice(names),
            chance.choice(OPERATIONS),
            chance.choice([AclPermissionType.DENY, AclPermissionType.ALLOW, AclPermissionType.ALLOW]),
            pattern=chance.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            principal=chance.choice(["User:alice", "User:bob", "User:*"]),
            host=chance.choice(["*", *HOSTS]),
            resource_type=chance.choice(TYPES),
        )


def line_of(it: AccessControlEntryRecord) -> str:
    resource = f"{it.resource_type:d}\t{it.resource_name}\t{it.pattern_type:d}"
    return f"acl\t{resource}\t{it.principal}\t{it.host}\t{it.operation:d}\t{it.permission_type:d}"


@pytest.mark.feature("SE-08", "SE-09")
@pytest.mark.parametrize("seed", [1, 2])
def test_both_authorizers_decide_alike(answers: list[str], seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)
    names = ["*", "hardcode", "h", *("".join(chance.choices("ab", k=chance.randint(1, 4))) for _ in range(14))]
    asked: list[str] = []
    ours: list[str] = []
    caplog.set_level(logging.DEBUG, "authorizer")
    for _ in range(ROUNDS):
        allow_everyone = chance.random() < 0.3
        acls = list({line_of(it): it for it in drawn_acls(chance, names)}.values())
        asked += [f"new\t{allow_everyone}", *map(line_of, acls)]
        authorizer = Guard(*acls, super_users=("User:root",), allow_everyone=allow_everyone).authorizer
        for _ in range(QUESTIONS):
            operation, kind, name = chance.choice(OPERATIONS[1:]), chance.choice(TYPES), chance.choice([*names, "abba"])
            user, host = chance.choice(["alice", "bob", "root"]), chance.choice([*HOSTS, "10.0.0.3"])
            question = f"{int(operation)}\t{int(kind)}\t{name}\t{user}\t{host}"
            request = request_of(user, host)
            asked += [f"any\t{question}", f"ask\t{question}"]
            ours.append(_word(authorizer.allows_any(request, operation, kind)))
            caplog.clear()
            allowed = authorizer.allows(request, operation, kind, name)
            ours += [caplog.messages[-1], _word(allowed)]
    done = subprocess.run(
        answers, input="\n".join([*asked, ""]), capture_output=True, text=True, timeout=120, check=True
    )
    lines = done.stdout.splitlines()
    # For `any` Kafka first checks, and logs, a resource of its own.
    assert [line for index, line in enumerate(lines) if index % 4] == ours


def _word(allowed: bool) -> str:
    return "ALLOWED" if allowed else "DENIED"
