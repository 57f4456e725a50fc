"""Keys of the object store: what they name, what they refuse, and that secrets stay secret."""

from __future__ import annotations

import pytest

from barnabas.settings.broker import BrokerSettings, load_broker_settings
from barnabas.settings.describe import BrokerLayers, describe_broker_configs
from barnabas.settings.errors import SettingsError
from barnabas.settings.object_store import StoreSettings, store_settings

pytestmark = pytest.mark.feature("TS-03")

FILE = """\
process.roles=broker
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092
controller.listener.names=CONTROLLER
controller.quorum.voters=101@127.0.0.1:9093
"""
BUCKET = """\
barnabas.remote.store.url=s3://segments/cluster-1
barnabas.remote.store.endpoint=http://127.0.0.1:7070
barnabas.remote.store.access.key=AKIDEXAMPLE
barnabas.remote.store.secret.key=wJalrXUtnFEMI
"""
KAFKAS = """\
remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage
rsm.config.dir=/tmp/kafka-remote-storage
"""


def load(text: str) -> BrokerSettings:
    settings, warnings = load_broker_settings(FILE + text, "broker-1.properties")
    assert warnings == []
    return settings


def test_no_key_means_no_store() -> None:
    assert load("").remote_store is None


def test_a_bucket_and_its_server() -> None:
    store = load(BUCKET + "barnabas.remote.store.timeout.ms=500\nbarnabas.remote.store.retries=0\n").remote_store
    assert store is not None and not store.is_directory
    assert (store.bucket, store.prefix, store.endpoint) == ("segments", "cluster-1", "http://127.0.0.1:7070")
    assert (store.access_key, store.secret_key) == ("AKIDEXAMPLE", "wJalrXUtnFEMI")
    assert (store.timeout_ms, store.retries, store.verify, store.region) == (500, 0, "checksum", "us-east-1")


def test_a_directory() -> None:
    store = load("barnabas.remote.store.url=file:///mnt/a%20b/c\nbarnabas.remote.store.verify=full\n").remote_store
    assert store == StoreSettings("file:///mnt/a%20b/c", verify="full")
    assert store.is_directory and store.directory == "/mnt/a b/c"


def test_the_directory_of_kafkas_local_tiered_storage() -> None:
    store = load(KAFKAS).remote_store
    assert store is not None and store.directory == "/tmp/kafka-remote-storage/kafka-tiered-storage"
    assert store.creates_directory
    other = KAFKAS.replace("rsm.config.", "x.") + "remote.log.storage.manager.impl.prefix=x.\n"
    loaded, _warnings = load_broker_settings(FILE + other.replace("/tmp", "/a#b"), "f")
    assert loaded.remote_store is not None
    assert loaded.remote_store.directory == "/a#b/kafka-remote-storage/kafka-tiered-storage"


def test_a_url_of_ours_wins_over_kafkas_class() -> None:
    store = load(KAFKAS + "barnabas.remote.store.url=file:///srv/tier\n").remote_store
    assert store is not None and store.directory == "/srv/tier" and not store.creates_directory


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ("url=ftp://x/y", "url=ftp://x/y: not the URL of a store; allowed: file:///path or s3://bucket/prefix"),
        ("url=file://host/path", "url=file://host/path: not the URL of a directory; allowed: file:///path or s3"),
        ("url=file:relative", "url=file:relative: not the URL of a directory"),
        ("url=s3://", "url=s3://: not the name of a bucket"),
        ("url=s3://Upper_Case", "url=s3://Upper_Case: not the name of a bucket"),
        ("url=s3://key:hush@bucket", r"url=\[hidden\]: credentials do not belong into the URL; set barnabas.remote"),
        ("endpoint=127.0.0.1:80", r"endpoint=127.0.0.1:80: not the address .*; allowed: http\(s\)://host:port"),
        ("endpoint=http://a:hush@h", r"endpoint=\[hidden\]: not the address of an S3 server"),
        ("timeout.ms=0", "timeout.ms=0: not a whole number in range; allowed: 100 to 600000"),
        ("timeout.ms=abc", "timeout.ms=abc: not a whole number in range"),
        ("retries=21", "retries=21: not a whole number in range; allowed: 0 to 20"),
        ("verify=perhaps", "verify=perhaps: not a way to verify; allowed: checksum or full"),
        ("access.key=hush", r"access.key=\[hidden\]: set barnabas.remote.store.secret.key, too"),
        ("secret.key=hush", r"secret.key=\[hidden\]: set barnabas.remote.store.access.key, too"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(line: str, refusal: str) -> None:
    url = "" if line.startswith("url") else "barnabas.remote.store.url=s3://segments\n"
    with pytest.raises(SettingsError, match=rf"^f line \d: barnabas\.remote\.store\.{refusal}") as raised:
        load_broker_settings(FILE + url + f"barnabas.remote.store.{line}\n", "f")
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("directory", ["", "relative/path"])
def test_kafkas_class_needs_its_directory(directory: str) -> None:
    with pytest.raises(SettingsError, match=r"rsm\.config\.dir.*: must be set; allowed: the path of a directory"):
        load_broker_settings(FILE + KAFKAS.replace("/tmp/kafka-remote-storage", directory), "f")


def test_another_class_names_no_store() -> None:
    assert store_settings({"remote.log.storage.manager.class.name": "com.example.S3Storage"}) is None


def test_secrets_show_nowhere() -> None:
    settings = load(BUCKET)
    secrets = ("AKIDEXAMPLE", "wJalrXUtnFEMI")
    described = {entry.name: entry for entry in describe_broker_configs(BrokerLayers(static=settings.raw))}
    assert described["barnabas.remote.store.secret.key"].sensitive
    for text in (repr(settings), str(settings), repr(settings.remote_store), repr(described)):
        assert not any(secret in text for secret in secrets)
