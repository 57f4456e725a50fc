"""Settings of GSSAPI that cannot be used are named, also where Kerberos is not installed."""

from __future__ import annotations

import sys

import pytest

from barnabas.runtime.real import real_world
from barnabas.runtime.sasl.mechanisms import SaslPorts, client_mechanism, server_mechanisms
from barnabas.runtime.sasl.options import ClientSaslOptions, SaslOptions, SaslOptionsError
from barnabas.runtime.sasl.provider_mechanisms import ProviderMechanisms

pytestmark = pytest.mark.feature("SE-05")

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
LISTENER = {"sasl.enabled.mechanisms": "GSSAPI", "gssapi.sasl.jaas.config": f'{MODULE} principal="kafka/h@R";'}
CLIENT = {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"}


def ports() -> SaslPorts:
    world = real_world()
    mechanisms = ProviderMechanisms(world)
    return SaslPorts(world.chance.randbytes, servers=mechanisms.servers, clients=mechanisms.clients)


@pytest.fixture
def _no_gssapi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)


@pytest.mark.usefixtures("_no_gssapi")
def test_without_the_extra_its_name_is_in_the_error() -> None:
    with pytest.raises(SaslOptionsError, match=r"GSSAPI needs the extra barnabas\[gssapi\]"):
        server_mechanisms(SaslOptions.of(LISTENER), None, None, ports())
    with pytest.raises(SaslOptionsError, match=r"GSSAPI needs the extra barnabas\[gssapi\]"):
        client_mechanism(ClientSaslOptions.of(CLIENT), ports())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sasl.kerberos.service.name": " "}, "sasl.kerberos.service.name: missing"),
        ({"sasl.jaas.config": f'{MODULE} keyTab="/k";'}, "the option principal"),
        ({"sasl.jaas.config": "org.example.Other required;"}, "must be of the login module com.sun"),
    ],
)
def test_a_client_that_cannot_log_in_is_refused(change: dict[str, str], problem: str) -> None:
    with pytest.raises(SaslOptionsError) as error:
        client_mechanism(ClientSaslOptions.of(CLIENT | change), ports())
    assert problem in str(error.value)


def test_a_listener_needs_its_login_module() -> None:
    with pytest.raises(SaslOptionsError, match=r"gssapi\.sasl\.jaas\.config"):
        server_mechanisms(SaslOptions.of({"sasl.enabled.mechanisms": "GSSAPI"}), None, None, ports())
