"""Setups that several scenarios share."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from scenarios.intercepted_messages import Letter
from scenarios.stage import Stage


async def leader_dies_before_followers_know(stage: Stage, topic: str, of_followers: int) -> dict[int, bytes]:
    """Two records are committed; one follower has the second and does not know that, when the leader dies.

    `of_followers` is its place among them. The followers cannot speak to each other from then on. Gives what was
    acknowledged, by offset.
    """
    leader, followers = stage.leader(topic), stage.followers(topic)
    unaware = followers[of_followers]
    async with stage.producer() as producer:
        acked = {(await producer.send(topic, b"known")).offset: b"known"}
        await stage.until(lambda: stage.log_of(unaware, topic).high_watermark == 1, "all know that it is committed")

        def after_news(_letter: Letter) -> bool:
            return stage.log_of(unaware, topic).log_end_offset == 2

        kept = stage.mail.keep(ApiKey.FETCH, "response", sender=leader, receiver=unaware, when=after_news)
        acked[(await producer.send(topic, b"unknown")).offset] = b"unknown"
    await kept.caught()
    stage.universe.wires.cut_between(followers[:1], followers[1:])
    stage.kill(leader)
    return acked
