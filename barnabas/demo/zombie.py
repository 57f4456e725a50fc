"""A write that is sent to a paused leader, so that it is processed first when the leader resumes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from barnabas.cluster.probe import NoAnswer, ask
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record

ANSWER_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The broker's answer to the write."""

    acked: bool
    text: str
    """Kafka's name of the error, or the failure of the connection."""


def write_to(port: int, topic: str, topic_id: bytes, partition: int, value: bytes) -> Answer:
    """Sends one record with acks=all to the broker at `port`, without looking up the leader, and waits for the answer.

    The kernel accepts connections for a paused process: the request waits in the socket until it resumes.
    """
    now_ms = time.time_ns() // 1_000_000
    data = PartitionProduceData(index=partition, records=build_batch([Record(0, now_ms, None, value, ())]))
    topics = [TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=int(ANSWER_SECONDS * 500), topic_data=topics)
    try:
        response = ask(port, request, ProduceResponse, ANSWER_SECONDS)
    except NoAnswer as error:
        return Answer(False, f"no answer ({error})")
    codes = [error_code(each.error_code) for found in response.responses for each in found.partition_responses]
    refusal = next((code for code in codes if code is not ErrorCode.NONE), None)
    return Answer(refusal is None and bool(codes), "an ack" if refusal is None else refusal.name)
