"""A connection that encrypts over another one. It keeps all promises of `runtime.world.Connection`.

OpenSSL works on two buffers in memory, so this runs over sockets and over simulated connections alike. `send_now`
reports bytes as taken only when their ciphertext has left: while any waits here, the caller has bytes left to send,
waits until the connection is writable, and offers them again. They are not encrypted twice.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import trio

from barnabas.runtime.network import EAGER_RECEIVES
from barnabas.runtime.security import EndedByAlert, HandshakeFailed, Payer
from barnabas.runtime.tls.reasons import reason_of
from barnabas.runtime.tls.records import RecordCutter
from barnabas.runtime.world import Bytes, Connection, ConnectionLost, File

SCRATCH_BYTES = 64 * 1024
"""Ciphertext that is received at once."""

PIECE_BYTES = 64 * 1024
"""Bytes that are encrypted at once. OpenSSL's buffers keep the size that they once had, so it bounds the memory of a
connection, and what a peer that reads nothing makes us hold."""

TURN_BYTES = 1024 * 1024
"""Bytes of a file after which others have a turn."""

MOST_ANSWERS_BYTES = 64 * 1024
"""Bytes that OpenSSL may want to send by itself (alerts) to a peer that does not take them."""

SLICE_BYTES = 16 * 1024
"""Ciphertext that OpenSSL gets at once."""

TURN_RECORDS = 100
"""Records after which others have a turn. Messages without data, such as changes of keys, cost 20 µs each, for 27
bytes."""

MOST_CONTROL_BYTES = 40 * 1024
"""Bytes of such messages that a connection may receive in its life, and of a record that is not complete."""

_RECORD_OVERHEAD_BYTES = {"TLSv1.3": 22}
_OLD_OVERHEAD_BYTES = 96
"""At most, in any suite of TLS 1.2."""


class TlsConnection:
    """One end of a TLS connection. `handshake` comes first."""

    __slots__ = (
        "_ahead",
        "_closed",
        "_connection",
        "_control",
        "_drained",
        "_eager",
        "_incoming",
        "_left",
        "_lost",
        "_outgoing",
        "_overhead",
        "_payer",
        "_pending",
        "_records",
        "_scratch",
        "_tls",
        "peer_host",
        "peer_port",
    )

    def __init__(
        self,
        connection: Connection,
        context: ssl.SSLContext,
        scratch: memoryview,
        *,
        server_side: bool = False,
        host: str | None = None,
    ) -> None:
        """`scratch` may be shared by all connections of one event loop. `host` is the name of the server, in clients.
        Raises HandshakeFailed if that cannot be one."""
        self._connection = connection
        self._scratch = scratch
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        except (ValueError, TypeError, ssl.SSLError) as error:
            raise HandshakeFailed(f"{host!r} is no name of a host: {error}") from error
        self.peer_host = connection.peer_host
        self.peer_port = connection.peer_port
        self._pending: memoryview = memoryview(b"")
        """Ciphertext that the connection below did not take yet."""
        self._ahead = 0
        """Bytes that are encrypted, and were not reported as taken."""
        self._drained = True
        """Nothing more can be decrypted before more is received."""
        self._left = memoryview(b"")
        """Ciphertext that was received, and not given to OpenSSL."""
        self._records = RecordCutter()
        self._payer: Payer | None = None
        self._control = 0
        """Bytes that were received without data, as far as they exceed the overhead of records."""
        self._overhead = 0
        self._lost: ConnectionLost | None = None
        self._eager = 0
        self._closed = False

    # -- the handshake

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the peer, in DER; None if it sent none."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def cipher_suite(self) -> str:
        """The suite that both sides agreed on, by its OpenSSL name."""
        cipher = self._tls.cipher()
        return "" if cipher is None else cipher[0]

    @property
    def version(self) -> str:
        """The version that both sides agreed on: TLSv1.2 or TLSv1.3."""
        return self._tls.version() or ""

    def feed(self, ciphertext: Bytes) -> None:
        """Take bytes that were received from the connection below."""
        self._incoming.write(ciphertext)
        self._records.piece_end(memoryview(ciphertext), 0, len(ciphertext), len(ciphertext))
        self._records.begun = 0
        self._drained = False

    def step(self) -> bool:
        """Take a step of the handshake with what was received. Returns True when it is over. Raises HandshakeFailed."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._send_alert()
            raise HandshakeFailed(reason_of(error)) from error
        self._overhead = _RECORD_OVERHEAD_BYTES.get(self.version, _OLD_OVERHEAD_BYTES)
        return True

    async def flush(self) -> None:
        """Send what the handshake has to send. Raises ConnectionLost."""
        while not self._flushed():
            await self._connection.wait_writable()

    async def receive(self) -> memoryview:
        """Wait for bytes from the connection below; they are valid until the caller waits again."""
        return self._scratch[: await self._connection.receive_into(self._scratch)]

    # -- receiving

    def charge_to(self, payer: Payer) -> None:
        """`payer` pays for decrypting from now on."""
        self._payer = payer

    @property
    def local_address(self) -> tuple[str, int]:
        return self._connection.local_address

    async def receive_into(self, buffer: memoryview) -> int:
        self._eager += 1
        if self._eager >= EAGER_RECEIVES:
            await self._let_others_run()
        count = 0 if self._drained else self._take(self._left, buffer)
        while not count:
            if self._records.begun >= TURN_RECORDS:
                await self._let_others_run()
            self._check_open()
            if self._lost is not None:
                raise self._lost
            count = self._take(self._left or await self.receive(), buffer)
        return count

    async def _let_others_run(self) -> None:
        """Nothing may be in the buffers that connections share."""
        self._eager = self._records.begun = 0
        if self._payer is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._payer.wait()

    def _take(self, ciphertext: memoryview, buffer: memoryview) -> int:
        """Decrypt what was fed before, and `ciphertext`, into `buffer`; keep what is too much for it, or for this turn.
        Returns the number of bytes, which may be 0."""
        payer = self._payer
        began = 0.0 if payer is None else payer.stopwatch()
        filled = 0 if self._drained else self._decrypt(buffer)
        position = 0
        while position < len(ciphertext) and filled < len(buffer) and self._lost is None:
            end = self._records.piece_end(ciphertext, position, SLICE_BYTES, TURN_RECORDS)
            if end == position:
                break
            self._incoming.write(ciphertext[position:end])
            self._control += end - position
            position = end
            filled += self._decrypt(buffer[filled:] if filled else buffer)
            if self._control > MOST_CONTROL_BYTES:
                self._lost = ConnectionLost("the peer sends too many messages without data")
        left = ciphertext[position:]
        self._left = left if ciphertext.readonly else memoryview(bytes(left))
        if payer is not None:
            payer.pay(began, payer.stopwatch())
        return filled

    def _decrypt(self, buffer: memoryview) -> int:
        """Fill `buffer` with what can be decrypted now; returns the number of bytes, which may be 0. The end, or a
        failure, is kept in `_lost`."""
        if self._lost is not None:
            return 0
        records = 0
        read: Any = self._tls.read
        incoming, pending = self._incoming, self._tls.pending
        filled, size = 0, len(buffer)
        self._drained = False
        try:
            while filled < size:
                count: int = read(size - filled, buffer[filled:])
                if not count:
                    self._lost = ConnectionLost("closed by the peer")
                    break
                filled += count
                records += 1
                if not incoming.pending and not pending():
                    self._drained = True
                    break
        except ssl.SSLWantReadError:
            self._drained = True
        except ssl.SSLError as error:
            self._lost = EndedByAlert(f"TLS: {reason_of(error)}")
        self._control = max(0, self._control - filled - records * self._overhead)
        if self._outgoing.pending:
            self._answer()
        return filled

    def _answer(self) -> None:
        """Send what OpenSSL wants to send by itself."""
        try:
            self._flushed()
        except ConnectionLost as lost:
            self._lost = lost
        if len(self._pending) > PIECE_BYTES + MOST_ANSWERS_BYTES:
            self._lost = ConnectionLost("the peer causes alerts and does not take them")

    # -- sending

    def send_now(self, views: Sequence[Bytes]) -> int:
        return self._send(partial(_pieces, views))

    def send_file_now(self, file: File, offset: int, count: int) -> int:
        return self._send(partial(_file_pieces, file, offset, count))

    def _send(self, pieces_after: Callable[[int], Iterator[Bytes]]) -> int:
        """Send what `pieces_after` gives for the number of bytes that were reported already."""
        self._check_open()
        if not self._flushed():
            return self._taken()
        taken, self._ahead = self._ahead, 0
        for piece in pieces_after(taken):
            self._encrypt(piece)
            if not self._flushed():
                return taken + self._taken()
            taken += self._ahead
            self._ahead = 0
        return taken

    async def wait_writable(self) -> None:
        self._check_open()
        await self._connection.wait_writable()

    def _encrypt(self, piece: Bytes) -> None:
        try:
            written = self._tls.write(piece)
        except ssl.SSLError as error:
            raise ConnectionLost(f"TLS: {reason_of(error)}") from error
        assert written == len(piece), "a buffer in memory takes all"
        self._ahead += written

    def _flushed(self) -> bool:
        """Send ciphertext; True if none waits any longer."""
        pending = self._pending
        if self._outgoing.pending:
            fresh = self._outgoing.read()
            pending = memoryview(b"".join((pending, fresh)) if pending else fresh)
        if pending:
            pending = pending[self._connection.send_now((pending,)) :]
            self._pending = pending
        return not pending

    def _taken(self) -> int:
        """Bytes to report while ciphertext waits: at least one is kept back until the last of it has left."""
        kept = min(self._ahead, len(self._pending))
        taken, self._ahead = self._ahead - kept, kept
        return taken

    # -- ends

    def has_ended(self) -> bool:
        return self._closed or self._lost is not None or self._connection.has_ended()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if not self._pending:
                self._send_end()
            self._connection.close()

    def _send_end(self) -> None:
        """Say that this is the end (close_notify), if the system takes it now."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # the peer has not said so yet, and nobody waits for it
        self._send_alert()

    def _send_alert(self) -> None:
        try:
            self._flushed()
        except ConnectionLost:
            pass  # it has gone already

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionLost("closed here")


def _pieces(views: Sequence[Bytes], skipped: int) -> Iterator[Bytes]:
    """The bytes of `views` after the first `skipped`, in pieces of at most PIECE_BYTES; small views are joined."""
    joined: list[Bytes] = []
    size = 0
    for whole in views:
        view = memoryview(whole)
        if skipped >= len(view):
            skipped -= len(view)
            continue
        view = view[skipped:]
        skipped = 0
        while view:
            part = view[: PIECE_BYTES - size]
            joined.append(part)
            size += len(part)
            view = view[len(part) :]
            if size == PIECE_BYTES:
                yield joined[0] if len(joined) == 1 else b"".join(joined)
                joined, size = [], 0
    if size:
        yield joined[0] if len(joined) == 1 else b"".join(joined)


def _file_pieces(file: File, offset: int, count: int, skipped: int) -> Iterator[Bytes]:
    """The bytes of a turn after the first `skipped`. Raises EOFError if there are none."""
    position, most = skipped, min(count, skipped + TURN_BYTES)
    while position < most:
        piece = file.pread(min(PIECE_BYTES, most - position), offset + position)
        if not piece:
            if position:
                return
            raise EOFError(f"{file.path} ends before byte {offset + 1}")
        yield piece
        position += len(piece)
