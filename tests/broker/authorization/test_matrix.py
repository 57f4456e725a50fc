"""Every row of the authorization matrix: our answers are those of Apache Kafka 4.3.1 (`kafka.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.runtime.channel import ChannelError
from tests.broker.apis.rig import Rig, play
from tests.broker.authorization.rows import CLOSED, ROWS, Row, cases, seen
from tests.broker.authorization.state import SETTINGS, grants, preparing
from tests.broker.authorization.users import User, create_acls, name_users

KAFKAS = {
    name: {case: answer for cases_of, answer in answered for case in cases_of}
    for name, answered in json.loads((Path(__file__).parent / "kafka.json").read_text()).items()
}


@pytest.fixture(scope="module")
def ours() -> dict[str, dict[str, Any]]:
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
        for grant in grants():
            await create_acls(rig, grant)
        name_users(rig)
        versions = await rig.ask(1, ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
        served = {it.api_key for it in versions.api_keys}
        assert served
        for user, row, case in cases():
            if row.api in served:
                client = User(rig, user)
                try:
                    if row.before is not None:
                        await client.ask(row.before.request(ids), row.before.version)
                    answer = seen(await client.ask(row.request(ids), row.version), ids)
                except ChannelError:
                    answer = CLOSED
                found.setdefault(row.name, {})[case] = json.loads(json.dumps(answer))
                client.close()

    play(story, 1, 1, SETTINGS)
    return found


@pytest.mark.feature("SE-09")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_our_answers_are_kafkas(ours: dict[str, dict[str, Any]], row: Row) -> None:
    if row.name not in ours:
        pytest.skip(f"brokers do not serve {row.api.name}")
    our_answers, kafkas = ours[row.name], KAFKAS[row.name]
    differences = [
        f"{case or 'nothing'}:\n  ours  {our_answers[case]}\n  Kafka {kafkas[case]}"
        for case in row.cases
        if our_answers[case] != kafkas[case]
    ]
    assert not differences, "\n".join(differences)
