"""Credentials of users that are set and deleted by requests of every kind, beside a plain dictionary of them."""

from __future__ import annotations

import hashlib
import hmac
import random
from typing import Any

import pytest

from barnabas.kraft.controller import scram
from barnabas.kraft.controller.request_limits import COUNTED_PER_ITEM
from barnabas.kraft.controller.state import Asked
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.runtime.identity import Principal
from tests.kraft.controller.conftest import Cluster, PlainPace, finish

USERS = ("ann", "bob", "cid", "")
NAMES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
HASHES = {1: "sha256", 2: "sha512"}
MOST_BYTES = 3
"""Longest salt and longest salted password here."""

Change = ScramCredentialDeletion | ScramCredentialUpsertion


class Credentials:
    """A cluster, and the salt, password and iterations of each user and mechanism."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.cluster = Cluster()
        self.plain: dict[tuple[str, int], tuple[bytes, bytes, int]] = {}

    def a_change(self, *, deletes: bool) -> Change:
        chance = self.chance
        name = chance.choice(USERS[:3] if chance.random() < 0.9 else USERS)
        mechanism = chance.choice([1, 2] if chance.random() < 0.9 else [0, 3])
        if deletes:
            return ScramCredentialDeletion(name=name, mechanism=mechanism)
        return ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=chance.choice([4096, 4096, 5000, 16384, 16384] if chance.random() < 0.9 else [4095, 16385]),
            salt=bytes(chance.choice([1, 2, MOST_BYTES] if chance.random() < 0.9 else [0, MOST_BYTES + 1])),
            salted_password=bytes(chance.choice([1, MOST_BYTES] if chance.random() < 0.9 else [0, MOST_BYTES + 1])),
        )

    def error_of(self, change: Change) -> ErrorCode:
        if not change.name:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL
        if change.mechanism not in NAMES:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if isinstance(change, ScramCredentialDeletion):
            is_known = (change.name, change.mechanism) in self.plain
            return ErrorCode.NONE if is_known else ErrorCode.RESOURCE_NOT_FOUND
        sizes = {len(change.salt), len(change.salted_password)}
        is_right = 4096 <= change.iterations <= 16384 and 0 not in sizes and max(sizes) <= MOST_BYTES
        return ErrorCode.NONE if is_right else ErrorCode.UNACCEPTABLE_CREDENTIAL

    def alter(self) -> None:
        chance, cluster = self.chance, self.cluster
        request = AlterUserScramCredentialsRequest(
            deletions=[self.a_change(deletes=True) for _ in range(chance.choice([0, 0, 1, 2]))],
            upsertions=[self.a_change(deletes=False) for _ in range(chance.choice([0, 1, 2, 3, 25]))],
        )
        asked: list[Change] = [*request.deletions, *request.upsertions]
        pace = PlainPace()
        pace.add(per_item=COUNTED_PER_ITEM)
        pace.add(per_item=COUNTED_PER_ITEM)
        codes: dict[str, ErrorCode] = {}
        for change in asked:
            pace.add()
            mine = [it for it in asked if it.name == change.name]
            # The first error counts; a second change is one, unless the first was refused before.
            code = self.error_of(mine[0])
            codes[change.name] = ErrorCode.DUPLICATE_RESOURCE if code is ErrorCode.NONE and len(mine) > 1 else code
        made = [it for it in asked if codes[it.name] is ErrorCode.NONE]
        for _ in made:
            pace.add()
        took: list[int] = []
        by = Asked(Principal("admin"), cluster.wall_ms)
        decision = cluster.controller.decide(request, 0, len(cluster.log), cluster.now_ms, by)
        result: Any = finish(decision, lambda: took.append(1))
        cluster.append(result)
        results = result.response.results
        assert {it.user: it.error_code for it in results} == codes and len(results) == len(codes)
        assert all((it.error_message is None) == (it.error_code == ErrorCode.NONE) for it in results)
        assert len(took) == 1 + pace.steps and result.is_long == (pace.steps > 0)
        notes = []
        for change in made:
            deletes = isinstance(change, ScramCredentialDeletion)
            done = "deleted" if deletes else "set"
            what = f"the {NAMES[change.mechanism]} credential of user {change.name} is {done}"
            notes.append((f"user {change.name}", what, "User:admin asked for it"))
            if isinstance(change, ScramCredentialDeletion):
                del self.plain[change.name, change.mechanism]
            else:
                known = (change.salt, change.salted_password, change.iterations)
                self.plain[change.name, change.mechanism] = known
        assert [(it.subject, it.text, it.cause) for it in result.notes] == notes

    def check(self) -> None:
        found = {
            key: (it.salt, it.stored_key, it.server_key, it.iterations)
            for key, it in self.cluster.image.others.scram.items()
        }
        expected = {}
        for key, (salt, salted, iterations) in self.plain.items():
            name = HASHES[key[1]]
            stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
            expected[key] = (salt, stored, hmac.digest(salted, b"Server Key", name), iterations)
        assert found == expected


@pytest.mark.feature("AD-07")
@pytest.mark.parametrize("seed", range(10))
def test_credentials_are_those_of_a_plain_dictionary(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram, "MAX_SECRET_BYTES", MOST_BYTES)
    credentials = Credentials(random.Random(seed))
    for _ in range(25):
        credentials.alter()
        credentials.check()
