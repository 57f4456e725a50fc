"""The first users of a cluster are given when it is formatted (KIP-900)."""

from __future__ import annotations

import random
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import run
from barnabas.kraft.first_users import WrongUser, first_users
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.kraft.metadata.features import METADATA_VERSION
from barnabas.kraft.snapshots import read_bootstrap_records
from barnabas.protocol.messages.metadata_log import FeatureLevelRecord, UserScramCredentialRecord
from barnabas.protocol.sasl.scram_credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    credential_of_salted_password,
    salted_password,
)
from barnabas.runtime.disk import RealDisk

NEWEST = 30
SECRET = "very-secret"


def made(*texts: str, level: int = NEWEST) -> list[UserScramCredentialRecord]:
    return first_users(texts, level, random.Random(1))


@pytest.mark.feature("AD-07", "KR-15", "SE-04")
def test_a_password_is_salted_and_hashed() -> None:
    (alice,) = made("SCRAM-SHA-256=[name=alice,password=alice-secret,iterations=8192,salt=c2FsdA==]")
    mechanism = SCRAM_SHA_256
    salted = salted_password(mechanism, b"alice-secret", b"salt", 8192)
    expected = credential_of_salted_password(mechanism, salted, b"salt", 8192)
    assert (alice.name, alice.mechanism, alice.iterations, alice.salt) == ("alice", 1, 8192, b"salt")
    assert (alice.stored_key, alice.server_key) == (expected.stored_key, expected.server_key)


@pytest.mark.feature("AD-07", "KR-15")
def test_salts_and_iterations_have_defaults() -> None:
    first, second = made('SCRAM-SHA-512=[name="bob", password="b=b"]', "SCRAM-SHA-512=[name=carol,password=b=b]")
    assert (first.name, first.iterations, len(first.salt)) == ("bob", 4096, 24)
    assert first.salt != second.salt
    mechanism = SCRAM_SHA_512
    salted = salted_password(mechanism, b"b=b", first.salt, 4096)
    assert first.stored_key == credential_of_salted_password(mechanism, salted, first.salt, 4096).stored_key


@pytest.mark.feature("AD-07", "KR-15")
def test_a_salted_password_makes_the_same_user_as_its_password() -> None:
    salted = b64encode(salted_password(SCRAM_SHA_256, b"pencil", b"salt", 4096)).decode()
    by_hash = made(f"SCRAM-SHA-256=[name=u,saltedpassword={salted},salt=c2FsdA]")
    assert by_hash == made("SCRAM-SHA-256=[name=u,password=pencil,salt=c2FsdA==]")


@pytest.mark.feature("AD-07", "KR-15")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SECRET, "must have the form"),
        (f"SCRAM-SHA-256=name=a,password={SECRET}", "must have the form"),
        (f"SCRAM-SHA-1=[name=a,password={SECRET}]", "the mechanism must be SCRAM-SHA-256 or SCRAM-SHA-512; got"),
        (f"SCRAM-SHA-256=[password={SECRET}]", "name is missing"),
        (f"SCRAM-SHA-256=[name=,password={SECRET}]", "name is missing"),
        ("SCRAM-SHA-256=[name=a]", "user a needs either password or saltedpassword"),
        (
            f"SCRAM-SHA-256=[name=a,password={SECRET},saltedpassword=c2FsdA==,salt=c2FsdA==]",
            "user a needs either password or saltedpassword",
        ),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2FsdA==]", "saltedpassword needs salt"),
        (f"SCRAM-SHA-256=[name=a,saltedpassword={SECRET}!,salt=c2FsdA==]", "saltedpassword must be base64"),
        (f"SCRAM-SHA-256=[name=a,password={SECRET},salt=]", "salt must not be empty"),
        (f"SCRAM-SHA-256=[name=a,password={SECRET},iterations=4095]", "iterations must be a number from 4096 to 16384"),
        (f"SCRAM-SHA-256=[name=a,password={SECRET},iterations=1e4]", "iterations must be a number from 4096 to 16384"),
        (f"SCRAM-SHA-256=[name=a,password=x,{SECRET}]", "part 3 between the brackets must be KEY=VALUE"),
        (f"SCRAM-SHA-256=[name=a,pass={SECRET}]", "part 2 between the brackets must be KEY=VALUE with a key of name"),
        (f"SCRAM-SHA-256=[name=a,name=b,password={SECRET}]", "name is given twice"),
    ],
)
def test_a_wrong_user_is_refused_without_its_secrets(text: str, message: str) -> None:
    with pytest.raises(WrongUser) as refused:
        made(text)
    assert message in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.feature("AD-07", "KR-15")
def test_a_user_has_one_password_for_each_mechanism() -> None:
    alice = "[name=alice,password=x]"
    assert len(made(f"SCRAM-SHA-256={alice}", f"SCRAM-SHA-512={alice}")) == 2
    with pytest.raises(WrongUser, match="only one password for each mechanism"):
        made(f"SCRAM-SHA-256={alice}", f"SCRAM-SHA-256={alice}")


@pytest.mark.feature("AD-07", "KR-15")
def test_an_old_metadata_version_has_no_users() -> None:
    alice = "SCRAM-SHA-256=[name=alice,password=x]"
    assert made(alice, level=11)
    with pytest.raises(WrongUser, match=r"metadata\.version 3\.5-IV2 or later"):
        made(alice, level=10)
    assert made(level=10) == []


@pytest.mark.feature("AD-07", "KR-15", "TO-01")
def test_the_command_writes_features_and_then_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "node.properties"
    config.write_text(
        "process.roles=controller\nnode.id=7\nlisteners=CONTROLLER://127.0.0.1:9093\n"
        f"log.dirs={tmp_path}/data\ncontroller.listener.names=CONTROLLER\ncontroller.quorum.voters=7@127.0.0.1:9093\n"
    )
    words = ["storage", "format", "-c", str(config), "-t", "q1Sh-9_ISia_zwGINzRvyQ"]
    assert run([*words, "-S", f"SCRAM-SHA-256=[name=a,password={SECRET},salt=]"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "--add-scram: salt must not be empty\n"
    assert not (tmp_path / "data").exists()
    users = ["-S", f"SCRAM-SHA-256=[name=a,password={SECRET}]", "--add-scram", "SCRAM-SHA-512=[name=b,password=x]"]
    assert run([*words, *users]) == 0
    records = read_bootstrap_records(RealDisk(), str(tmp_path / "data"))
    assert records[: len(bootstrap_records())] == bootstrap_records()
    assert [it.name for it in records[len(bootstrap_records()) :]] == ["a", "b"]  # type: ignore[attr-defined]


@pytest.mark.feature("AD-07", "KR-15")
def test_the_first_controller_writes_them_into_the_log(make_controller: Any) -> None:
    (alice,) = made("SCRAM-SHA-256=[name=alice,password=x]")
    controller = make_controller([*bootstrap_records({METADATA_VERSION: 28}), alice])
    records = controller.activate(1, 0, 0)
    assert records[0] == FeatureLevelRecord(name=METADATA_VERSION, feature_level=28)
    assert alice in records


@pytest.fixture
def make_controller() -> Any:
    from barnabas.kraft.controller.controller import QuorumController
    from barnabas.kraft.controller.state import ControllerDefaults

    defaults = ControllerDefaults(node_id=1, cluster_id="c", quorum_ids=(1,))
    return lambda bootstrap: QuorumController(defaults, random.Random(1), bootstrap)
