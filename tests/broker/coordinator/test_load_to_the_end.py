"""A new coordinator reads its log to the end, including unconfirmed records of its predecessor."""

from __future__ import annotations

from functools import partial

import pytest

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.coordinator.shard import ShardState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.control import EndTxn
from tests.broker.apis.rig import Rig, on_cluster
from tests.broker.coordinator.test_coordinator import TOPIC, Answers, coordinate


@pytest.mark.feature("CG-12", "TX-01")
@on_cluster(brokers=3)
async def test_a_new_coordinator_loads_records_above_its_high_watermark(rig: Rig) -> None:
    """The records will be committed; a decision without them would contradict them."""
    coordinators = {node: coordinate(rig, node) for node in (1, 2, 3)}
    await rig.create(TOPIC, partitions=1, replicas=3)
    await rig.until(lambda: rig.leader(TOPIC) > 0 and coordinators[rig.leader(TOPIC)].shards)
    leader = rig.leader(TOPIC)
    followers = sorted({1, 2, 3} - {leader})
    shard = coordinators[leader].shards[0]
    await rig.until(lambda: shard.state is ShardState.ACTIVE)
    answers = Answers()
    stamp = ProducerStamp(7, 0)
    first = answers.reply("in a transaction")
    verification = shard.begin_verification(stamp, supports_epoch_bump=False)
    shard.run(partial(shard.machine.count_in, "a", first, stamp, verification), first)
    await rig.until(lambda: "in a transaction" in answers.got)
    shard.end_transaction(stamp, EndTxn(True, 0), answers.reply("ended"), "done")
    last = answers.reply("last")
    shard.run(partial(shard.machine.count, "a", last, None), last)
    end = shard.partition.log.log_end_offset
    copies = [rig.partition(node, TOPIC).log for node in followers]
    await rig.until(lambda: all(copy.log_end_offset == end for copy in copies))

    # The followers have all of it, but neither knows that it is committed, and they cannot reach each other.
    rig.universe.wires.cut_between([rig.name(followers[0])], [rig.name(followers[1])])
    rig.cluster.kill(rig.name(leader))
    await rig.until(lambda: rig.leader(TOPIC) not in (leader, -1))
    successor = coordinators[rig.leader(TOPIC)]
    await rig.until(lambda: successor.shards and successor.shards[0].state is ShardState.ACTIVE)
    shard = successor.shards[0]
    assert shard.partition.log.high_watermark < end
    assert shard.machine.counts == {"a": 2}
    assert shard.machine.pending == {}
    look = answers.reply("look")
    shard.run(partial(shard.machine.look, "a", look), look)
    assert "look" not in answers.got, "no client sees what is not committed"
    rig.universe.wires.heal()
    await rig.until(lambda: "look" in answers.got)
    assert answers.got["look"] in (2, ErrorCode.COORDINATOR_NOT_AVAILABLE)
