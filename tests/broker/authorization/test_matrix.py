"""Every row of the authorization matrix: our answers are those of Apache Kafka 4.3.1 (`kafka.json`)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.runtime.channel import Channel
from barnabas.runtime.identity import Principal
from barnabas.runtime.request import Request
from barnabas.runtime.response_slot import ResponseSlot
from barnabas.runtime.server import Handle
from barnabas.runtime.steps import Steps
from tests.broker.apis.rig import Rig, play
from tests.broker.authorization.rows import ROWS, Row, cases, seen
from tests.broker.authorization.state import SETTINGS, grants, preparing

KAFKAS = json.loads((Path(__file__).parent / "kafka.json").read_text())



class Named:
    """Hands requests on in the name of the user that the client id says."""

    def __init__(self, handler: Handle) -> None:
        self._handler = handler

    def __call__(self, request: Request, slot: ResponseSlot) -> Steps | None:
        client_id = request.client_id or ""
        if client_id.startswith("user:"):
            request.principal = Principal(client_id.removeprefix("user:"))
        return self._handler(request, slot)


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
        await give_rights(rig)
        versions = await rig.ask(1, ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
        served = {it.api_key for it in versions.api_keys}
        assert served
        for user, row, case in cases():
            if row.api in served:
                channel = Channel(rig.world, rig.nursery, "broker-1", rig.port(1), client_id=f"user:{user}")
                answer = await channel.call(row.request(ids), timeout_ms=60_000, version=row.version)
                found.setdefault(row.name, {})[case] = json.loads(json.dumps(seen(answer, ids)))
                channel.close()

    play(story, 1, 1, SETTINGS)
    return found


async def give_rights(rig: Rig) -> None:
    """Every case has its access control lists, on the broker and on the controller."""
    for request in grants():
        answer = await rig.ask(1, request, 3)
        assert not any(it.error_code for it in answer.results), answer
    await trio.sleep(1)  # virtual: the nodes follow the metadata log
    server: Any = rig.broker(1)._server
    server._service = replace(server._service, handle=Named(server._service.handle))


@pytest.mark.feature("SE-08")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_our_answers_are_kafkas(row: Row) -> None:
    if row.name not in answers():
        pytest.skip(f"brokers do not serve {row.api.name}")
    ours, kafkas = answers()[row.name], KAFKAS[row.name]
    differences = [
        f"{case or 'nothing'}:\n  ours  {ours[case]}\n  Kafka {kafkas[case]}"
        for case in row.cases
        if ours[case] != kafkas[case]
    ]
    assert not differences, "\n".join(differences)
