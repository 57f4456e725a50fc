"""The profile `s3` of docker-compose.yml without docker: its brokers find the store, and no command has a password."""

from __future__ import annotations

import re

import pytest

from barnabas.settings.broker import load_broker_settings
from barnabas.settings.controller import load_controller_settings
from tests.docker.compose_file import ROOT, command, profiles, section, services

SHAPE = ROOT / "cluster-configs" / "compose"


def overrides(service: str) -> dict[str, str]:
    """The settings in the command of a service."""
    pairs = [word.removeprefix("--set=").partition("=") for word in command(service, {})[1:]]
    return {key: value for key, _equals, value in pairs}


@pytest.mark.feature("TS-03")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_broker_has_the_bucket_of_the_server_beside_it(number: int) -> None:
    service = f"s3-broker-{number}"
    text = (SHAPE / f"broker-{number}.properties").read_text()
    settings, warnings = load_broker_settings(text, service, overrides(service))
    assert warnings == [] and settings.remote_log_storage_system_enable
    store = settings.remote_store
    assert store is not None and store.endpoint == "http://s3:7070" and "s3" in services()
    assert f"/{store.bucket}]" in section("s3-bucket"), "the bucket is made as a directory"
    assert store.access_key is None, "credentials are in the environment: other users see commands"
    assert f"aliases: [broker-{number}]" in section(service)


@pytest.mark.feature("TS-03")
def test_controllers_know_of_tiered_storage() -> None:
    for number in (101, 102, 103):
        service = f"s3-controller-{number}"
        text = (SHAPE / f"controller-{number}.properties").read_text()
        settings, _warnings = load_controller_settings(text, service, overrides(service))
        assert settings.remote_log_storage_system_enable
        assert f"aliases: [controller-{number}]" in section(service)


@pytest.mark.feature("TS-03")
def test_the_server_and_the_brokers_have_the_same_keys() -> None:
    brokers, server = section("x-s3-broker"), section("s3")
    for anchor in ("s3-access-key", "s3-secret-key"):
        assert re.search(rf"&{anchor} ", brokers) and re.search(rf"\*{anchor}$", server, re.MULTILINE)
    assert profiles("s3") == profiles("s3-bucket") == ["s3"]
