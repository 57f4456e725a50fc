"""The authorizer of a node follows the metadata log: little at once, much in steps, and nothing too early."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.kraft.authorization import Authorization
from barnabas.kraft.authorizing import make_authorization
from barnabas.kraft.metadata.image import EMPTY_IMAGE
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata.snapshot import difference
from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from barnabas.runtime.access import AuthorizerNotReady
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.settings.authorization import STANDARD_AUTHORIZER
from tests.kraft.authorizer.asking import request_of
from tests.kraft.authorizer.test_compiled import READ, TOPIC, acl
from tests.kraft.node.conftest import settings_of

pytestmark = pytest.mark.feature("SE-08")


def record(number: int, name: str, **fields: Any) -> AccessControlEntryRecord:
    made = acl(name, **fields)
    made.id = number.to_bytes(16, "big")
    return made


class Following:
    """An authorization that is given what a loader makes of a log."""

    def __init__(self, universe: Universe, nursery: trio.Nursery) -> None:
        settings = settings_of(101, (101,), authorizer_class_name=STANDARD_AUTHORIZER)
        world = make_world("controller-101", universe)
        decisions = Decisions("controller-101", world.wall_clock.now_ms)
        made = make_authorization(settings, world, nursery, decisions)
        assert isinstance(made, Authorization)
        assert make_authorization(settings_of(101, (101,)), world, nursery, decisions) is None
        self.authorization = made
        self._loader = MetadataLoader()
        self._offset = 0

    def commit(self, *records: object, is_caught_up: bool = True) -> None:
        for delta in self._loader.handle_commit(self._offset, 1, 0, list(records)):
            self.authorization.put(delta, is_caught_up=is_caught_up)
        self._offset += len(records)

    def load(self, loader: MetadataLoader) -> None:
        self.authorization.put(difference(EMPTY_IMAGE, loader.image), is_caught_up=False)
        self._loader, self._offset = loader, loader.image.offset + 1

    def may_read(self, name: str) -> bool:
        return self.authorization.authorizer.allows(request_of("alice"), READ, TOPIC, name)


def play(story: Any) -> None:
    async def run(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            await story(Following(universe, nursery))
            nursery.cancel_scope.cancel()

    run_simulation(1, run)


def test_few_changes_count_at_once() -> None:
    async def story(following: Following) -> None:
        following.commit(record(1, "flights"))
        assert following.may_read("flights")
        following.commit(record(2, "seats"), RemoveAccessControlEntryRecord(id=record(1, "").id))
        assert (following.may_read("flights"), following.may_read("seats")) == (False, True)

    play(story)


def test_ten_thousand_acls_are_compiled_in_the_background_and_later_changes_wait_for_them() -> None:
    async def story(following: Following) -> None:
        loader = MetadataLoader()
        loader.handle_commit(0, 1, 0, [record(number, f"topic-{number}") for number in range(10_000)])
        following.load(loader)
        following.commit(RemoveAccessControlEntryRecord(id=record(7, "").id))
        with pytest.raises(AuthorizerNotReady):
            following.may_read("topic-8")
        await following.authorization.ready_for("CONTROLLER")
        assert following.authorization.authorizer.acls.count == 0, "an early listener does not wait"
        await following.authorization.ready_for("PLAINTEXT")
        assert following.authorization.authorizer.acls.count == 9_999
        assert (following.may_read("topic-7"), following.may_read("topic-8")) == (False, True)

    play(story)


def test_nothing_is_decided_on_a_part_of_the_log() -> None:
    async def story(following: Following) -> None:
        following.commit(record(1, "flights"), is_caught_up=False)
        with pytest.raises(AuthorizerNotReady):
            following.may_read("flights")
        following.commit(record(2, "seats"))
        assert following.may_read("flights")
        values = {family.name: next(iter(family.samples))[1] for family in following.authorization.families()}
        assert values["kafka_server_plugins_acls_total_count"] == 2
        assert values["kafka_server_plugins_authorization_request"] == 1

    play(story)
