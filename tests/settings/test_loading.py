"""A node's file becomes its settings, or one line with the mistake in it."""

import pytest

from barnabas.settings.authorization import STANDARD_AUTHORIZER
from barnabas.settings.broker import load_broker_settings
from barnabas.settings.controller import load_controller_settings
from barnabas.settings.errors import SettingsError
from barnabas.settings.listeners import Endpoint, Listener, Voter
from barnabas.settings.oauth import KEYS_OF_OAUTH

BROKER = """\
# a broker
process.roles=broker
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.voters=101@127.0.0.1:9192,102@127.0.0.1:9193
listeners=PLAINTEXT://127.0.0.1:9092
broker.session.timeout.ms=6000
log.dirs=/data/a,/data/b
"""

CONTROLLER = """\
process.roles=controller
node.id=101
controller.listener.names=CONTROLLER
controller.quorum.voters=101@127.0.0.1:9192
listeners=CONTROLLER://127.0.0.1:9192
"""


@pytest.mark.feature("OP-02")
def test_a_brokers_file() -> None:
    settings, warnings = load_broker_settings(BROKER, "broker-1.properties")
    assert warnings == []
    assert settings.node_id == 1
    assert settings.broker_session_timeout_ms == 6000
    assert settings.log_dirs == ["/data/a", "/data/b"]
    assert settings.metadata_directory == "/data/a"
    assert settings.listeners == settings.advertised_listeners == [Listener("PLAINTEXT", "127.0.0.1", 9092)]
    assert settings.controller_quorum_voters == [Voter(101, "127.0.0.1", 9192), Voter(102, "127.0.0.1", 9193)]
    assert settings.raw["broker.session.timeout.ms"] == "6000"
    assert "replica.lag.time.max.ms" not in settings.raw
    assert settings.replica_lag_time_max_ms == 30000


@pytest.mark.feature("OB-06")
def test_the_http_listener() -> None:
    settings, warnings = load_broker_settings(BROKER + "barnabas.http.listener=127.0.0.1:9292\n", "broker-1.properties")
    assert (settings.http_listener, warnings) == (Endpoint("127.0.0.1", 9292), [])
    assert load_broker_settings(BROKER + "barnabas.http.listener=\n", "b")[0].http_listener is None
    with pytest.raises(SettingsError, match=r"^b line 9: barnabas.http.listener=9292: not an address; allowed: host:"):
        load_broker_settings(BROKER + "barnabas.http.listener=9292\n", "b")


def test_the_file_with_the_token_of_the_http_listener() -> None:
    guarded = BROKER + f"authorizer.class.name={STANDARD_AUTHORIZER}\nsuper.users=User:a\n"
    everywhere = guarded + "barnabas.http.listener=0.0.0.0:9292\n"
    settings, warnings = load_broker_settings(everywhere + "barnabas.http.token.file= /etc/token \n", "b")
    assert (settings.http_token_file, warnings) == ("/etc/token", [])
    _, [warning] = load_broker_settings(everywhere, "b")
    assert "barnabas.http.listener (0.0.0.0:9292)" in warning and "set barnabas.http.token.file" in warning
    assert load_broker_settings(guarded + "barnabas.http.listener=127.0.0.1:9292\n", "b")[1] == []
    assert load_broker_settings(BROKER + "barnabas.http.token.file=\n", "b")[0].http_token_file is None


@pytest.mark.feature("QU-09")
def test_the_scope_of_quotas() -> None:
    settings, warnings = load_broker_settings(BROKER + "barnabas.quota.scope=cluster\n", "b")
    assert (settings.quota_scope, warnings) == ("cluster", [])
    assert load_broker_settings(BROKER, "b")[0].quota_scope == "broker"
    with pytest.raises(SettingsError, match=r"^b line 9: barnabas.quota.scope=rack: not a scope .* broker or cluster$"):
        load_broker_settings(BROKER + "barnabas.quota.scope=rack\n", "b")


@pytest.mark.feature("OP-02")
def test_a_controllers_file() -> None:
    settings, warnings = load_controller_settings(CONTROLLER, "controller-101.properties")
    assert warnings == []
    assert settings.controller_listener_names == ["CONTROLLER"]
    assert settings.listeners == [Listener("CONTROLLER", "127.0.0.1", 9192)]


@pytest.mark.feature("OP-02")
def test_an_unknown_key_is_warned_of_with_the_nearest_name() -> None:
    _settings, warnings = load_broker_settings(BROKER + "brokr.rack=r1\n", "broker-1.properties")
    assert warnings == ["broker-1.properties line 9: brokr.rack: not a key of Kafka 4.3; did you mean broker.rack?"]


@pytest.mark.feature("SE-05")
@pytest.mark.parametrize("listener", ["", "listener.name.client.", "listener.name.client.oauthbearer."])
def test_keys_of_oauthbearer_that_are_not_settings_of_kafka_are_known(listener: str) -> None:
    text = "".join(f"{listener}{key}=true\n" for key in sorted(KEYS_OF_OAUTH))
    settings, warnings = load_broker_settings(BROKER + text, "b")
    assert warnings == [] and settings.raw[f"{listener}{min(KEYS_OF_OAUTH)}"] == "true"


def test_keys_that_change_nothing_here_are_listed() -> None:
    settings, _ = load_broker_settings(BROKER + "num.io.threads=3\nlog.retention.hours=2\n", "b")
    assert settings.not_acted_on == ["num.io.threads"]
    assert settings.topic_defaults.retention_ms == 2 * 3600 * 1000


def test_overrides_win_and_errors_name_them() -> None:
    settings, _ = load_broker_settings(BROKER, "b", {"broker.session.timeout.ms": "7000", "broker.rack": "r1"})
    assert (settings.broker_session_timeout_ms, settings.broker_rack) == (7000, "r1")
    with pytest.raises(SettingsError, match=r"^--set: num\.partitions=0: out of range; allowed: 1 or more$"):
        load_broker_settings(BROKER, "b", {"num.partitions": "0"})


def test_several_listeners_with_protocols_of_their_own() -> None:
    settings, _ = load_broker_settings(
        BROKER,
        "b",
        {
            "listeners": "INTERNAL://:9092, HOST://[::]:19092",
            "advertised.listeners": "INTERNAL://broker-1:9092,HOST://127.0.0.1:29092",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,HOST:plaintext,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        },
    )
    assert [str(each) for each in settings.listeners] == ["INTERNAL://:9092", "HOST://[::]:19092"]
    assert settings.advertised_listeners[1] == Listener("HOST", "127.0.0.1", 29092)
    assert settings.inter_broker_listener_name == "INTERNAL"


def test_a_listener_without_a_host_is_known_by_the_machines_name() -> None:
    settings, _ = load_broker_settings(BROKER, "b", {"listeners": "PLAINTEXT://:9092"}, hostname="machine")
    assert settings.listeners[0].host == ""
    assert settings.advertised_listeners[0].host == "machine"


def test_controllers_may_be_given_by_address_alone() -> None:
    text = BROKER.replace("controller.quorum.voters=101@127.0.0.1:9192,102@127.0.0.1:9193", "")
    settings, _ = load_broker_settings(text, "b", {"controller.quorum.bootstrap.servers": "a:1,[::1]:2"})
    assert settings.controller_quorum_bootstrap_servers == [Endpoint("a", 1), Endpoint("::1", 2)]


def test_broker_id_is_the_older_name_of_node_id() -> None:
    settings, _ = load_broker_settings(BROKER.replace("node.id", "broker.id"), "b")
    assert settings.node_id == 1
    with pytest.raises(SettingsError, match=r"broker\.id=2: differs from node\.id; allowed: 1"):
        load_broker_settings(BROKER, "b", {"broker.id": "2"})


def test_a_heartbeat_interval_above_the_session_timeout_is_a_warning() -> None:
    _, warnings = load_broker_settings(BROKER, "b", {"broker.heartbeat.interval.ms": "5000"})
    assert len(warnings) == 1 and "broker.session.timeout.ms" in warnings[0]


@pytest.mark.feature("OP-02")
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"process.roles": "broker,controller"}, "the file of a combined node; `barnabas node` runs it"),
        ({"process.roles": "controller"}, "the file of a broker must have this role; allowed: broker"),
        ({"node.id": "101"}, "the id of a broker must not be in controller.quorum.voters"),
        (
            {"listeners": "SSL://:9093"},
            "inter.broker.listener.name=PLAINTEXT: must be the name of a listener of this broker; allowed: SSL",
        ),
        ({"listeners": "OTHER://:9093"}, "listener OTHER has no protocol; set one in listener.security"),
        ({"listeners": "localhost:9093"}, "not a listener address; allowed: NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:99999"}, "not a listener address; allowed: NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "listener name PLAINTEXT must be given only once"),
        ({"listeners": "PLAINTEXT://h:1,CONTROLLER://h:2"}, "a broker must not listen on CONTROLLER"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to this address"),
        ({"advertised.listeners": "CONTROLLER://h:9092"}, "CONTROLLER must be a name in listeners"),
        (
            {"inter.broker.listener.name": "INTERNAL"},
            "must be the name of a listener of this broker; allowed: PLAINTEXT",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "not a listener name with its protocol"),
        ({"controller.quorum.voters": "127.0.0.1:9192"}, "not a voter; allowed: id@host:port"),
        ({"controller.quorum.voters": "7@a:1,7@b:1"}, "voter 7 must be given only once"),
        ({"controller.listener.names": ""}, "controller.listener.names: must be set"),
        ({"controller.quorum.voters": ""}, "this or controller.quorum.bootstrap.servers must be set"),
        (
            {"replica.fetch.wait.max.ms": "31000"},
            "must be at most replica.socket.timeout.ms; allowed: 0 to 30000",
        ),
        ({"queued.max.request.bytes": "5"}, "must not be below socket.request.max.bytes"),
        ({"max.connections.per.ip.overrides": "host"}, "not an address with its limit; allowed: host:count"),
        ({"authorizer.class.name": "x.Authorizer"}, "not an authorizer of this node; allowed: org.apache.kafka."),
        ({"super.users": "admin"}, "super.users=admin: not a principal; allowed: Type:name"),
        ({"allow.everyone.if.no.acl.found": "yes"}, "not a boolean; allowed: true or false"),
        ({"early.start.listeners": "EXTERNAL"}, "EXTERNAL is neither in listeners nor in controller.listener.names"),
        ({"log.dirs": "/a,/a"}, "repeated directory"),
    ],
)
def test_a_value_that_cannot_work_is_refused_in_one_line(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_broker_settings(BROKER, "b.properties", overrides)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_errors_point_at_the_line() -> None:
    with pytest.raises(SettingsError) as refused:
        load_broker_settings(BROKER.replace("6000", "abc"), "broker-1.properties")
    assert str(refused.value) == (
        "broker-1.properties line 7: broker.session.timeout.ms=abc: not a whole number; allowed: 1 or more"
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"node.id": "104"}, "the id of a controller must be in controller.quorum.voters; allowed: 101"),
        ({"listeners": "PLAINTEXT://h:9092"}, "a controller listens only on names in controller.listener.names"),
        ({"listeners": ""}, "listeners: must be set; allowed: CONTROLLER://host:port"),
    ],
)
def test_settings_that_a_controller_cannot_have(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_controller_settings(CONTROLLER, "c.properties", overrides)
    assert message in str(refused.value)


def test_controllers_of_a_quorum_listen_before_the_acls_are_loaded() -> None:
    guarded = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:CN=a,O=b; User:c"}
    one = {**guarded, "controller.quorum.voters": "101@a:1"}
    settings, _ = load_controller_settings(CONTROLLER, "c.properties", one)
    assert (settings.super_users, settings.early_start_listeners) == (["User:CN=a,O=b", "User:c"], ["CONTROLLER"])
    assert load_controller_settings(CONTROLLER, "c.properties", {**one, "early.start.listeners": ""})[0]
    three = {**guarded, "controller.quorum.voters": "101@a:1,102@b:1,103@c:1"}
    assert load_controller_settings(CONTROLLER, "c.properties", three)[1] == []
    with pytest.raises(SettingsError, match=r"early.start.listeners=: must have the listeners of controllers"):
        load_controller_settings(CONTROLLER, "c.properties", {**three, "early.start.listeners": ""})
    _, [warning] = load_controller_settings(CONTROLLER, "c.properties", {**three, "super.users": ""})
    assert warning.startswith("super.users is empty")
