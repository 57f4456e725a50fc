"""Every job is done, whatever happens to workers and brokers; impossible jobs are given up."""

from __future__ import annotations

import json
from collections import Counter

import trio
from queue_worker import GROUP, JOBS, TryAgain, work

from barnabas import Admin, AlterConfigOp, ConfigResource, Producer, ResourceType


async def test_every_job_is_done_while_a_broker_is_killed(barnabas_simulated_cluster) -> None:
    cluster = barnabas_simulated_cluster
    await cluster.create_topic(JOBS, partitions=3)
    done: Counter[int] = Counter()
    attempts: Counter[int] = Counter()

    async def handle(job: dict) -> None:
        number = job["number"]
        attempts[number] += 1
        if number % 10 == 3 and attempts[number] == 1:
            raise TryAgain("the first attempt fails")
        await trio.sleep(40 if number == 7 else 0.1)  # longer than a lock
        done[number] += 1

    async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
        group = ConfigResource(ResourceType.GROUP, GROUP)
        await admin.incremental_alter_configs({group: [AlterConfigOp("share.auto.offset.reset", "earliest")]})
    async with trio.open_nursery() as nursery:
        for worker in ("1", "2", "3"):
            nursery.start_soon(work, cluster.bootstrap_servers, handle, cluster.client_world(f"worker-{worker}"))
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
            for number in range(60):
                await producer.send(JOBS, json.dumps({"number": number}).encode())
            await producer.send(JOBS, b"no json")
            await producer.send(JOBS, b'{"no": "number"}')
        while done.total() < 20:
            await trio.sleep(0.1)
        cluster.kill(await cluster.leader_of(JOBS))
        with trio.fail_after(300):
            while len(done) < 60:
                await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert set(done) == set(range(60))
    assert all(attempts[number] >= 2 for number in range(3, 60, 10))
