"""The store on an S3 server: proofs of puts, errors in one line, a server that is away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from barnabas.runtime.object_store import NoSuchObject, ObjectStore, StoreError, StoreRefused
from barnabas.runtime.real import real_world
from barnabas.runtime.stores import s3
from barnabas.settings.object_store import StoreSettings
from tests.runtime.stores.fake_s3 import FakeS3, fake_s3
from tests.runtime.stores.stores import opened
from tests.s3_servers import BUCKET, S3Server, create_bucket, moto_server

pytestmark = pytest.mark.feature("TS-03")


@pytest.fixture
def fake() -> Iterator[FakeS3]:
    with fake_s3() as server:
        yield server


def store_at(url: str, **others: object) -> ObjectStore:
    fields: dict[str, object] = {"access_key": "A", "secret_key": "hush-hush", "timeout_ms": 2_000, "retries": 0}
    settings = StoreSettings(f"s3://{BUCKET}/p", endpoint=url, **(fields | others))  # type: ignore[arg-type]
    return opened(real_world(), settings)


# --- proofs ---


async def test_a_checksum_of_the_store_is_proof(fake: FakeS3) -> None:
    await store_at(fake.url).put("a", [b"con", b"tent"])
    assert fake.requests == [("PUT", f"/{BUCKET}/p/a"), ("HEAD", f"/{BUCKET}/p/a")]


async def test_bytes_are_read_back_where_the_etag_is_no_md5(fake: FakeS3) -> None:
    fake.etag = lambda _data: "0001f-7"
    await store_at(fake.url).put("a", [b"content"])
    assert [method for method, _path in fake.requests] == ["PUT", "HEAD", "GET"]


async def test_bytes_are_read_back_if_it_is_asked_for(fake: FakeS3) -> None:
    await store_at(fake.url, verify="full").put("a", [b"content"])
    assert [method for method, _path in fake.requests] == ["PUT", "HEAD", "GET"]


@pytest.mark.parametrize("verify", ["checksum", "full"])
async def test_other_bytes_are_found(fake: FakeS3, verify: str) -> None:
    fake.kept = lambda data: bytes([data[0] ^ 1]) + data[1:]
    with pytest.raises(StoreError, match=r"^put a: the bytes that were read back differ from those that were sent$"):
        await store_at(fake.url, verify=verify).put("a", [b"content"])


async def test_fewer_bytes_are_found(fake: FakeS3) -> None:
    fake.kept = lambda data: data[:-1]
    with pytest.raises(StoreError, match=r"^put a: the store has 6 bytes of 7$"):
        await store_at(fake.url).put("a", [b"content"])


# --- errors ---


@pytest.mark.parametrize(
    ("status", "code", "message", "error"),
    [
        (403, "AccessDenied", "Access Denied", StoreRefused),
        (403, "InvalidAccessKeyId", "The key does not exist", StoreRefused),
        (403, "SignatureDoesNotMatch", "The signature is wrong", StoreRefused),
        (404, "NoSuchBucket", "The bucket does not exist", StoreRefused),
        (400, "AuthorizationHeaderMalformed", "the region is wrong", StoreRefused),
        (500, "InternalError", "We encountered an internal error", StoreError),
        (503, "SlowDown", "Reduce your request rate", StoreError),
        (507, "XMinioStorageFull", "Storage backend has reached its capacity", StoreError),
    ],
)
async def test_an_error_is_one_line_without_secrets(
    fake: FakeS3, status: int, code: str, message: str, error: type[StoreError]
) -> None:
    signed = "<AWSAccessKeyId>A</AWSAccessKeyId><StringToSign>AWS4 hush</StringToSign>"
    fake.failure = status, f"<Error><Code>{code}</Code><Message>{message}</Message>{signed}</Error>"
    with pytest.raises(StoreError) as raised:
        await store_at(fake.url).put("a", [b"content"])
    assert type(raised.value) is error
    assert str(raised.value) == f"put a in bucket {BUCKET}: {code}: {message}"


async def test_a_failure_that_passes_is_tried_again(fake: FakeS3) -> None:
    fake.failure = 503, "<Error><Code>SlowDown</Code></Error>"

    async def recover() -> None:
        while len(fake.requests) < 3:
            await trio.sleep(0.01)
        fake.failure = None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(recover)
        await store_at(fake.url, retries=10).put("a", [b"content"])
    assert fake.objects[f"/{BUCKET}/p/a"] == b"content"


async def test_a_deletion_in_a_bucket_that_is_missing_has_not_happened(fake: FakeS3) -> None:
    fake.failure = 404, "<Error><Code>NoSuchBucket</Code><Message>The bucket does not exist</Message></Error>"
    with pytest.raises(StoreRefused, match="NoSuchBucket"):
        await store_at(fake.url).delete("a")


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("<Error><Code>XAdminUserNotFound</Code><Message>No user</Message></Error>", "XAdminUserNotFound: No user"),
        ("<html>nothing here</html>", "404 Not Found"),
    ],
)
async def test_a_404_that_is_not_about_the_object_says_nothing_about_it(fake: FakeS3, body: str, cause: str) -> None:
    """A deletion that such an answer ended must be done again."""
    fake.failure = 404, body
    store = store_at(fake.url)
    for call in (store.put("a", [b"x"]), store.get("a"), store.size("a"), store.delete("a"), store.list("a")):
        with pytest.raises(StoreRefused, match=cause):
            await call


async def test_a_server_that_is_away_is_an_error_that_may_pass() -> None:
    with pytest.raises(StoreError) as raised:
        await store_at("http://127.0.0.1:9").get("a")
    assert type(raised.value) is StoreError
    assert str(raised.value).startswith(f"get a in bucket {BUCKET}: ") and "\n" not in str(raised.value)
    assert str(raised.value).endswith(": Connection refused")


async def test_credentials_that_are_nowhere_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"no credentials; set barnabas\.remote\.store\.access\.key, or AWS_ACCESS"):
        await store_at("http://127.0.0.1:9", access_key=None, secret_key=None).get("a")


async def test_a_server_that_answers_nothing_is_a_timeout(tmp_path: Path) -> None:
    server = moto_server(tmp_path)
    server.start()
    try:
        create_bucket(server)
        store = opened(real_world(), server.settings(timeout_ms=500, retries=1))
        await store.put("a", [b"content"])
        server.pause()
        began = time.monotonic()
        with pytest.raises(StoreError) as raised:
            await store.get("a")
        assert type(raised.value) is StoreError
        assert time.monotonic() - began < 30
        server.resume()
        assert await store.get("a") == b"content"
    finally:
        server.kill()


async def test_a_cancelled_call_returns_at_once(tmp_path: Path) -> None:
    server = moto_server(tmp_path)
    server.start()
    try:
        create_bucket(server)
        store = opened(real_world(), server.settings(timeout_ms=30_000))
        server.pause()
        began = time.monotonic()
        with trio.move_on_after(0.2):
            await store.put("a", [os.urandom(100)])
        assert time.monotonic() - began < 10
    finally:
        server.kill()


async def test_unknown_keys_and_missing_buckets_differ(moto: S3Server) -> None:
    settings = moto.settings()
    with pytest.raises(NoSuchObject):
        await opened(real_world(), settings).get("no-such-key")
    missing = StoreSettings("s3://no-such-bucket", settings.endpoint, access_key="A", secret_key="B", retries=0)
    store = opened(real_world(), missing)
    for call in (store.put("a", [b"x"]), store.get("a"), store.list("a"), store.delete("a")):
        with pytest.raises(StoreRefused, match="NoSuchBucket"):
            await call


async def test_the_etag_of_a_multipart_upload_is_known_before(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the proof, so nothing has to be read back."""

    def read(*_arguments: object) -> None:
        raise AssertionError("the object is read back")

    monkeypatch.setattr(s3.obstore, "get", read)
    await opened(real_world(), moto.settings("multipart")).put("big", [os.urandom((16 << 20) + 1)])
