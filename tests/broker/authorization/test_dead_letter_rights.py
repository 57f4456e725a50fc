"""Dead letters on a cluster with an authorizer: brokers write them, with their own rights."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_acls import CreateAclsRequest
from barnabas.runtime.channel import Channel
from tests.broker.apis.rig import Rig, batch_of, play
from tests.broker.authorization.rows import rights_in
from tests.broker.authorization.state import SETTINGS, creation
from tests.broker.authorization.users import create_acls, name_users
from tests.broker.shares.share_rig import GROUP_RESOURCE, Member, begin, start_offset

pytestmark = pytest.mark.feature("CG-23", "SE-09")

ACCEPT, REJECT = 1, 3
DLQ = "dlq.work"


async def grant(rig: Rig, user: str, rights: str) -> None:
    await create_acls(rig, CreateAclsRequest(creations=[creation(user, right) for right in rights_in(rights)]))


async def set_up(rig: Rig, dead_letters_on: int) -> bytes:
    topic_id = await rig.create("orders", replicas=[1])
    await rig.create(DLQ, replicas=[dead_letters_on], errors_deadletterqueue_group_enable="true")
    await rig.configure(
        GROUP_RESOURCE,
        "work",
        errors_deadletterqueue_topic_name=DLQ,
        errors_deadletterqueue_copy_record_enable="true",
    )
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    return topic_id


async def reject(rig: Rig, topic_id: bytes, user: str) -> None:
    """A user with no right on the dead-letter topic rejects the first record."""
    await grant(rig, user, "topic orders READ + group work READ")
    name_users(rig)
    member = Member(rig, "one", topic_id)
    member.channel = Channel(rig.world, rig.nursery, rig.name(1), rig.port(1), client_id=f"user:{user}")
    assert await member.until_taken() == [(0, 1, 1)]
    assert await member.acknowledged((0, 1, [REJECT, ACCEPT])) == ErrorCode.NONE


@pytest.mark.parametrize("dead_letters_on", [1, 2])
def test_neither_members_nor_the_group_need_a_right_on_the_dead_letter_topic(dead_letters_on: int) -> None:
    async def story(rig: Rig) -> None:
        topic_id = await set_up(rig, dead_letters_on)
        await reject(rig, topic_id, "alice")
        await rig.until(lambda: start_offset(rig.broker(1), topic_id) == 2)
        assert rig.partition(dead_letters_on, DLQ).log.log_end_offset == 1

    play(story, 3, 1, SETTINGS)


def test_a_broker_that_may_not_write_keeps_the_record_until_it_may() -> None:
    async def story(rig: Rig) -> None:
        name_users(rig, 2, {"broker-1-dead-letters-2": "broker-1"})
        topic_id = await set_up(rig, 2)
        await reject(rig, topic_id, "alice")
        await trio.sleep(5)
        assert start_offset(rig.broker(1), topic_id) == 0
        assert rig.partition(2, DLQ).log.log_end_offset == 0
        notes = [it for it in rig.broker(1).decisions.since(0, "orders-0") if "no dead letter yet" in it.sentence]
        assert notes[-1].cause == "TOPIC_AUTHORIZATION_FAILED: broker 2 refuses a batch for dlq.work-0"
        await grant(rig, "broker-1", "topic dlq.work WRITE")
        await rig.until(lambda: start_offset(rig.broker(1), topic_id) == 2)
        assert rig.partition(2, DLQ).log.log_end_offset == 1

    play(story, 3, 1, SETTINGS)
