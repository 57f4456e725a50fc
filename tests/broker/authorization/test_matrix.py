"""Every row of the authorization matrix: our answers are those of Apache Kafka 4.3.1 (`kafka.json`)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from barnabas.kraft.authorizer.compiled import CompiledAcls
from barnabas.kraft.authorizer.standard import StandardAuthorizer
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord
from barnabas.runtime.channel import Channel
from barnabas.runtime.identity import Principal
from barnabas.runtime.request import Request
from tests.broker.apis.rig import Rig, play
from tests.broker.authorization.rows import BROKER_ROWS, LAST_ROWS, Row, cases, rights_in, seen
from tests.broker.authorization.state import SETTINGS, preparing

KAFKAS = json.loads((Path(__file__).parent / "kafka.json").read_text())

ROWS = [*BROKER_ROWS, *LAST_ROWS]


class ByClientId:
    """The authorizer of a node, for clients that say by their client ids who they are."""

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self._authorizer = authorizer

    def allows(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        audited: bool = True,
    ) -> bool:
        return self._authorizer.allows(_of(request), operation, resource_type, name, audited=audited)

    def allows_any(self, request: Request, operation: AclOperation, resource_type: AclResourceType) -> bool:
        return self._authorizer.allows_any(_of(request), operation, resource_type)

    def authorized_operations(self, request: Request, resource_type: AclResourceType, name: str) -> int:
        return self._authorizer.authorized_operations(_of(request), resource_type, name)


def _of(request: Request) -> Request:
    client_id = request.client_id or ""
    if client_id.startswith("user:"):
        return replace(request, principal=Principal(client_id.removeprefix("user:")))
    return request


def granted() -> CompiledAcls:
    """The access control lists of all cases."""
    records = [
        AccessControlEntryRecord(
            id=number.to_bytes(16, "big"),
            resource_type=right.resource_type,
            resource_name=right.name,
            pattern_type=PatternType.LITERAL,
            principal=f"User:{user}",
            host="*",
            operation=right.operation,
            permission_type=AclPermissionType.ALLOW,
        )
        for number, (user, right) in enumerate(
            (user, right) for user, _, case in cases() for right in rights_in(case)
        )
    ]
    compiling = CompiledAcls().changed((None, record) for record in records)
    while True:
        try:
            next(compiling)
        except StopIteration as end:
            acls: CompiledAcls = end.value
            return acls


@cache
def answers() -> dict[str, dict[str, Any]]:
    """Ours, by row and case."""
    found: dict[str, dict[str, Any]] = {}

    async def story(rig: Rig) -> None:
        preparation = preparing()
        answer = None
        while True:
            try:
                request, version = preparation.send(answer)
            except StopIteration as end:
                ids = end.value
                break
            answer = await rig.ask(1, request, version)
        give_rights(rig)
        for user, row, case in cases():
            if row in ROWS:
                channel = Channel(rig.world, rig.nursery, "broker-1", rig.port(1), client_id=f"user:{user}")
                answer = await channel.call(row.request(ids), timeout_ms=60_000, version=row.version)
                found.setdefault(row.name, {})[case] = json.loads(json.dumps(seen(answer, ids)))
                channel.close()

    play(story, 1, 1, SETTINGS)
    return found


def give_rights(rig: Rig) -> None:
    broker = rig.broker(1)
    assert broker.authorization is not None
    authorizer = broker.authorization.authorizer
    authorizer.put(granted())
    dispatcher: Any = broker._dispatcher
    dispatcher._execution = replace(dispatcher._execution, authorizer=ByClientId(authorizer))


@pytest.mark.feature("SE-08")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_our_answers_are_kafkas(row: Row) -> None:
    ours, kafkas = answers()[row.name], KAFKAS[row.name]
    differences = [
        f"{case or 'nothing'}:\n  ours  {ours[case]}\n  Kafka {kafkas[case]}"
        for case in row.cases
        if ours[case] != kafkas[case]
    ]
    assert not differences, "\n".join(differences)
