"""Requests of principals, without a connection."""

from __future__ import annotations

from barnabas.kraft.authorizer.audit import Audit
from barnabas.kraft.authorizer.standard import StandardAuthorizer
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.identity import Principal
from barnabas.runtime.request import Request
from tests.kraft.authorizer.test_compiled import of


def request_of(
    name: str, host: str = "10.0.0.1", key: int = ApiKey.PRODUCE, body: bytes = b"", version: int = 0
) -> Request:
    """A request of `User:name`."""
    data = memoryview(bytearray(body))
    return Request(key, version, 1, "client", data, host, "PLAINTEXT", 1, 0, principal=Principal(name))


class Guard:
    """An authorizer, its decisions and its clock."""

    def __init__(
        self, *acls: AccessControlEntryRecord, super_users: tuple[str, ...] = (), allow_everyone: bool = False
    ) -> None:
        self.now_ms = 0
        self.decisions = Decisions("broker-1", lambda: self.now_ms)
        audit = Audit(self.decisions, lambda: self.now_ms)
        self.authorizer = StandardAuthorizer(super_users, audit, allow_everyone_if_no_acl_found=allow_everyone)
        self.authorizer.put(of(*acls))
        self.authorizer.is_loaded = True
