"""`barnabas check` on somebody else's cluster that wants TLS and a login, which the application knows nothing of."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas import sync
from barnabas.settings.properties import render_properties
from tests.compat.check_runs import CheckRun, check_example
from tests.compat.client.any_cluster import AnyCluster
from tests.compat.client.secured_kafka import JAAS_PASSWORD, SecuredKafka

pytestmark = [
    pytest.mark.compat,
    pytest.mark.client("confluent-kafka"),
    pytest.mark.timeout(400),
    pytest.mark.nightly_on_kafka,
]

FAULTS = ("--minutes", "0.3", "--faults", "kill,pause,expire,drop-answers", "--seed", "1")


def run_on(secured: SecuredKafka, directory: Path, program: str, *options: str) -> CheckRun:
    settings = {name.replace("_", "."): value for name, value in secured.options("SASL_SSL").items()}
    jaas = f'username="{settings.pop("sasl.plain.username")}" password="{JAAS_PASSWORD}";'
    del settings["sasl.plain.password"]
    settings["sasl.jaas.config"] = f"org.apache.kafka.common.security.scram.ScramLoginModule required {jaas}"
    servers = settings.pop("bootstrap.servers")
    file = directory / "client.properties"
    file.write_text(render_properties(settings))
    names = {f"--{each}": AnyCluster("", ()).new_name(f"check-{each}") for each in ("input", "output", "group")}
    where = [word for pair in names.items() for word in pair]
    run = check_example(
        directory, program, "--bootstrap-server", servers, "--command-config", str(file), *where, *FAULTS, *options
    )
    with sync.Admin(**secured.options("SASL_SSL")) as admin:
        assert not set(names.values()) & set(admin.list_topics()), "what the check made is gone"
    return run


def test_a_commit_before_the_work_is_found(secured: SecuredKafka, tmp_path: Path) -> None:
    run = run_on(secured, tmp_path, "commit_before_work")
    assert run.code == 1, run.printed + run.complaints
    assert run.found["counts"].keys() == {"lost"}


@pytest.mark.slow
def test_a_correct_application_passes(secured: SecuredKafka, tmp_path: Path) -> None:
    run = run_on(secured, tmp_path, "exactly_once", "--promise", "exactly-once", "--promise", "ordered")
    assert run.code == 0, run.printed + run.complaints
    assert run.found["figures"]["faults"] > 0


def test_a_wrong_password_is_one_line(secured: SecuredKafka, tmp_path: Path) -> None:
    settings = secured.options("SASL_SSL") | {"sasl_plain_password": "wrong"}
    servers = settings.pop("bootstrap_servers")
    file = tmp_path / "client.properties"
    file.write_text(render_properties({name.replace("_", "."): value for name, value in settings.items()}))
    run = check_example(tmp_path, "at_least_once", "-b", servers, "--command-config", str(file), *FAULTS)
    assert run.code == 2
    begins, reason = run.complaints.splitlines()
    assert begins.startswith("seed 1, ") and reason.startswith("cannot run: "), run.complaints
    assert "SASL_AUTHENTICATION_FAILED" in reason and "wrong" not in reason
