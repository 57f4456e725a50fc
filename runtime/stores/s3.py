"""An object store on a server that speaks the S3 protocol, by the library obstore.

A put is proven in two steps. The server gets the SHA-256 of each request (in the signature and as
x-amz-checksum-sha256) and refuses other bytes. Then the size and the ETag of the stored object are asked for and
compared with the MD5 that was computed here, for a multipart upload the MD5 of the MD5s of its parts. Some stores have
ETags that are no MD5 (keys of a KMS, S3 Express): there, and with `verify=full`, all bytes are read back and compared.

An object above `PART_BYTES` is a multipart upload: it appears whole at its end. If the process is killed before, its
parts stay in the bucket, invisible and paid for, until the bucket's rule for incomplete uploads removes them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from itertools import chain
from typing import Any, TypeVar

import obstore
import trio
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from barnabas.runtime.object_store import (
    NoSuchObject,
    ObjectExists,
    Part,
    StoredObject,
    StoreError,
    StoreRefused,
    pieces_of,
    size_of,
)
from barnabas.runtime.world import Bytes, RunBlocking
from barnabas.settings.object_store import STORE_ACCESS_KEY, StoreSettings

T = TypeVar("T")
Listing = list[StoredObject]

PART_BYTES = 8 << 20
"""Bytes in a part of a multipart upload; smaller objects are sent in one request."""
_PARTS_AT_ONCE = 2
_LARGE_BYTES = 1 << 20
_LARGE_AT_ONCE = 4
"""Objects above `_LARGE_BYTES` that are sent at a time: each takes memory for three parts."""
LARGEST_CREATE_ONLY_BYTES = 64 << 20
"""The library sends an object that must not replace another one in a single request."""
_CONNECT_TIMEOUT_MS = 5_000
_LONGEST_CAUSE = 300
_RANGE_REFUSED = "status code: 416"

_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,500})</Message>")
_REASON = re.compile(r'(?:message|error): "([^"\n]{1,200})"')
"""The reason of a failed connection, in the details that the library adds."""
_OF_CREDENTIALS = ("169.254.", "/latest/api/token", "/latest/meta-data")
"""Where machines of Amazon get their credentials: the library asks there last."""
_NO_SUCH_KEY = ("NoSuchKey", "NoSuchVersion")
_REFUSED = re.compile(r"status code: 40[134]\b")
_REFUSALS = (
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthorizationHeaderMalformed",
    "InvalidAccessKeyId",
    "InvalidBucketName",
    "InvalidToken",
    "NoSuchBucket",
    "PermanentRedirect",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
)
"""Codes of errors that do not pass by themselves."""


class S3ObjectStore:
    """See `runtime.object_store.ObjectStore`. Every call runs in a thread."""

    def __init__(self, settings: StoreSettings, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._bucket = settings.bucket
        self._verifies_fully = settings.verify == "full"
        self._store = _open(settings)
        self._large = trio.Semaphore(_LARGE_AT_ONCE)

    async def put(self, key: str, parts: Sequence[Part], *, if_absent: bool = False) -> None:
        async with self._large if size_of(parts) > _LARGE_BYTES else nullcontext():
            await self._run_blocking(lambda: self._put(key, parts, if_absent))

    async def get(self, key: str, start: int = 0, count: int | None = None) -> bytes:
        return await self._run_blocking(lambda: self._get(key, start, count))

    async def size(self, key: str) -> int:
        return await self._run_blocking(lambda: self._head("size", key)[0])

    async def delete(self, key: str) -> None:
        await self._run_blocking(lambda: self._delete(key))

    async def list(self, prefix: str) -> list[StoredObject]:
        return await self._run_blocking(lambda: self._list(prefix))

    async def close(self) -> None:
        """Connections close with the last reference to the store."""

    # --- in a thread ---

    def _put(self, key: str, parts: Sequence[Part], if_absent: bool) -> None:
        total_bytes = size_of(parts)
        is_multipart = total_bytes > PART_BYTES and not if_absent
        if if_absent and total_bytes > LARGEST_CREATE_ONLY_BYTES:
            raise StoreRefused(f"put {key}: {total_bytes} bytes; at most {LARGEST_CREATE_ONLY_BYTES} if it must be new")
        sent = _Sent(parts, is_multipart)
        with self._errors("put", key, sent):
            obstore.put(
                self._store,
                key,
                sent.blocks() if is_multipart else b"".join(sent.blocks()),
                mode="create" if if_absent else "overwrite",
                use_multipart=is_multipart,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        self._prove(key, total_bytes, sent.etag)

    def _prove(self, key: str, total_bytes: int, expected: _Etag) -> None:
        """Raises `StoreError` unless the stored object is the one that was sent."""
        size_bytes, etag = self._head("put", key)
        if size_bytes != total_bytes:
            raise StoreError(f"put {key}: the store has {size_bytes} bytes of {total_bytes}")
        if not self._verifies_fully and etag == expected.text():
            return
        read = _Etag(expected.is_multipart)
        with self._errors("put", key):
            for block in _in_blocks(map(memoryview, obstore.get(self._store, key).stream(min_chunk_size=PART_BYTES))):
                read.add(block)
        if read.text() != expected.text():
            raise StoreError(f"put {key}: the bytes that were read back differ from those that were sent")

    def _get(self, key: str, start: int, count: int | None) -> bytes:
        if count == 0:
            self._head("get", key)
            return b""
        with self._errors("get", key):
            try:
                if count is not None:
                    return bytes(obstore.get_range(self._store, key, start=start, length=count))
                options: dict[str, Any] = {"range": {"offset": start}} if start else {}
                return bytes(obstore.get(self._store, key, options=options).bytes())  # type: ignore[arg-type]
            except GenericError as error:
                # A range that begins at the end or after it is refused.
                if _RANGE_REFUSED in str(error):
                    return b""
                raise

    def _head(self, operation: str, key: str) -> tuple[int, str]:
        """Size and ETag."""
        try:
            with self._errors(operation, key):
                found = obstore.head(self._store, key)
        except NoSuchObject:
            # The answer to HEAD has no text: this one says whether the bucket or the user is missing.
            self._get(key, 0, 1)
            raise
        return found["size"], (found["e_tag"] or "").strip('"')

    def _delete(self, key: str) -> None:
        try:
            with self._errors("delete", key):
                obstore.delete(self._store, key)
        except NoSuchObject:
            pass

    def _list(self, prefix: str) -> Listing:
        directory = prefix.rpartition("/")[0] or None
        with self._errors("list", prefix):
            found = list(chain.from_iterable(obstore.list(self._store, directory)))
        return sorted(
            StoredObject(each["path"], each["size"], int(each["last_modified"].timestamp() * 1000))
            for each in found
            if each["path"].startswith(prefix)
        )

    @contextmanager
    def _errors(self, operation: str, key: str, sent: _Sent | None = None) -> Iterator[None]:
        """Raise errors of the library as `StoreError`."""
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            if sent is not None and sent.error is not None:
                raise sent.error from None
            raise self._translated(operation, key, error) from error

    def _translated(self, operation: str, key: str, error: Exception) -> StoreError:
        text = str(error)
        cause = _cause(text)
        at = f"{operation} {key} in bucket {self._bucket}"
        if isinstance(error, AlreadyExistsError | PreconditionError):
            return ObjectExists(f"{at}: there is an object with this key")
        if isinstance(error, FileNotFoundError) and _is_about_the_key(text):
            return NoSuchObject(f"{at}: there is no such object")
        refused = FileNotFoundError | PermissionDeniedError | UnauthenticatedError
        if isinstance(error, refused) or _REFUSED.search(text) or any(each in cause for each in _REFUSALS):
            return StoreRefused(f"{at}: {cause}")
        return StoreError(f"{at}: {cause}")


class _Etag:
    """The ETag of an object at a store that makes it of MD5s, computed from its blocks."""

    def __init__(self, is_multipart: bool) -> None:
        self.is_multipart = is_multipart
        self._parts = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    def add(self, block: Bytes) -> None:
        self._parts += 1
        self._md5.update(hashlib.md5(block, usedforsecurity=False).digest() if self.is_multipart else block)

    def text(self) -> str:
        return f"{self._md5.hexdigest()}-{self._parts}" if self.is_multipart else self._md5.hexdigest()


class _Sent:
    """The bytes of a put while they are read, their ETag, and the error that ended the reading."""

    def __init__(self, parts: Sequence[Part], is_multipart: bool) -> None:
        self._parts = parts
        self.etag = _Etag(is_multipart)
        self.error: OSError | StoreError | None = None

    def blocks(self) -> Iterator[Bytes]:
        try:
            for block in _in_blocks(pieces_of(self._parts, PART_BYTES)):
                self.etag.add(block)
                yield block
        except (OSError, StoreError) as error:
            self.error = error
            raise


def _in_blocks(pieces: Iterable[Bytes]) -> Iterator[Bytes]:
    """The same bytes in blocks of exactly `PART_BYTES`, the last one shorter."""
    block = bytearray()
    for piece in pieces:
        if not block and len(piece) == PART_BYTES:
            yield piece
            continue
        view = memoryview(piece)
        while len(block) + len(view) >= PART_BYTES:
            room = PART_BYTES - len(block)
            block += view[:room]
            view = view[room:]
            yield bytes(block)
            block = bytearray()
        block += view
    if block:
        yield bytes(block)


def _open(settings: StoreSettings) -> S3Store:
    timeout = timedelta(milliseconds=settings.timeout_ms)
    provider: Callable[[], Any] | None = None
    if settings.access_key is not None:
        # As a function, so that no token of the environment joins them.
        credentials = {
            "access_key_id": settings.access_key,
            "secret_access_key": settings.secret_key,
            "token": None,
            "expires_at": None,
        }
        provider = credentials.copy
    endpoint: dict[str, Any] = {} if settings.endpoint is None else {"endpoint": settings.endpoint.rstrip("/")}
    return S3Store(
        settings.bucket,
        prefix=settings.prefix or None,
        region=settings.region,
        virtual_hosted_style_request=False,
        checksum_algorithm="SHA256",
        disable_bulk_delete=True,
        client_options={
            "allow_http": (settings.endpoint or "").startswith("http:"),
            "timeout": timeout,
            "connect_timeout": min(timeout, timedelta(milliseconds=_CONNECT_TIMEOUT_MS)),
            "user_agent": "barnabas",
        },
        retry_config={
            "max_retries": settings.retries,
            "retry_timeout": timeout * (settings.retries + 1),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
        },
        credential_provider=provider,
        **endpoint,
    )


def _is_about_the_key(text: str) -> bool:
    """True for a 404 about an object. Others are about a bucket, a user, or from a server that knows no S3: with those
    nothing is known about the object, and a deletion has not happened.
    """
    code = _CODE.search(text)
    return code[1] in _NO_SUCH_KEY if code is not None else "performing HEAD" in text


def _cause(text: str) -> str:
    """One line without what servers repeat of a request: access keys, strings that were signed."""
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        return f"{code[1]}: {message[1]}" if message is not None else code[1]
    words, _mark, details = text.partition("\n\nDebug source")
    line = " ".join(words.split()).removeprefix("Generic S3 error: ")
    if any(each in line for each in _OF_CREDENTIALS):
        return f"no credentials; set {STORE_ACCESS_KEY}, or AWS_ACCESS_KEY_ID in the environment"
    reasons = _REASON.findall(details)
    if reasons or "kind: Timeout" in details:
        line = f"{line}: {reasons[-1] if reasons else 'timeout'}"
    return line if len(line) <= _LONGEST_CAUSE else line[: _LONGEST_CAUSE - 1] + "…"
