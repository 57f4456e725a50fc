"""Options of the source: the names of Spark's own source, and a one-line error for an invalid one."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import Isolation
from barnabas.pipeline.errors import PipelineError, WrongUse
from barnabas.pipeline.reading_options import Positions, ReadingOptions, read_options

FLIGHTS = TopicPartition("flights", 0)


def options(*, streaming: bool = False, **given: Any) -> ReadingOptions:
    return read_options({"bootstrap": "127.0.0.1:9092", "subscribe": "flights"} | given, streaming=streaming)


def test_by_default_a_batch_reads_everything_and_a_stream_new_records() -> None:
    batch, stream = options(), options(streaming=True)
    assert (batch.starting.kind, batch.ending.kind) == (Positions.EARLIEST, Positions.LATEST)
    assert stream.starting.kind is Positions.LATEST
    assert batch.fail_on_data_loss and batch.isolation is Isolation.READ_UNCOMMITTED


@pytest.mark.feature("PL-04")
def test_names_come_in_whatever_case() -> None:
    """Spark passes them in lower case."""
    found = read_options(
        {
            "KAFKA.bootstrap.servers": "127.0.0.1:9092",
            "subscribepattern": "fl.*",
            "maxoffsetspertrigger": "10",
            "FAILONDATALOSS": "False",
            "kafka.isolation.level": "read_committed",
            "groupid": "board",
        },
        streaming=True,
    )
    assert (found.max_offsets_per_trigger, found.fail_on_data_loss, found.group_id) == (10, False, "board")
    assert found.isolation is Isolation.READ_COMMITTED
    assert found.subscription.wants("flights") and not found.subscription.wants("a-flight")


def test_positions_are_words_offsets_or_times() -> None:
    found = options(startingOffsets='{"flights": {"0": 23}}', endingTimestamp="1750000000000")
    assert found.starting.by_partition == {FLIGHTS: 23}
    assert (found.ending.kind, found.ending.timestamp_ms) == (Positions.TIMESTAMP, 1_750_000_000_000)
    found = options(startingOffsets="earliest", startingOffsetsByTimestamp='{"flights": {"0": 5}}')
    assert (found.starting.kind, found.starting.by_partition) == (Positions.TIMESTAMPS, {FLIGHTS: 5})


def test_partitions_are_assigned() -> None:
    found = read_options({"bootstrap": "a:1", "assign": '{"flights": [1, 0]}'}, streaming=False)
    assert found.subscription.assigned == (FLIGHTS, TopicPartition("flights", 1))
    assert found.subscription.names == ("flights",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxRecordPerPartition": "5"}, "did you mean maxRecordsPerPartition?"),
        ({"kafka.security.protocol": "TLS"}, "option kafka.security.protocol must be PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.jaas.config"),
        ({"kafka.ssl.truststore.locations": "/a"}, "did you mean kafka.ssl.truststore.location?"),
        ({"minPartitions": "many"}, "must be a whole number; got 'many'"),
        ({"minPartitions": "0"}, "must be at least 1; got 0"),
        ({"failOnDataLoss": "no"}, "must be true or false; got 'no'"),
        ({"assign": '{"flights": [0]}'}, "exactly one"),
        ({"startingOffsets": "latest"}, "no rows"),
        ({"endingOffsets": "earliest"}, "no rows"),
        ({"startingOffsets": '{"flights": {"0": -1}}'}, "latest"),
        ({"endingOffsets": '{"flights": {"0": -2}}'}, "earliest"),
        ({"startingOffsets": '{"flights": {"0": -3}}'}, "startingOffsets"),
        ({"startingOffsets": '{"trains": {"0": 3}}'}, "trains-0"),
        ({"startingOffsets": "[]"}, '{"flights": {"0": 23, "1": 42}}'),
        ({"startingOffsets": "erliest"}, "must be earliest, latest or offsets as JSON"),
        ({"startingOffsets": '{"flights": 3}'}, "got 3 for flights"),
        ({"startingTimestamp": "-4"}, "milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "must be error or latest; got 'guess'"),
        ({"maxOffsetsPerTrigger": "5"}, "for streams"),
        ({"groupId": "board"}, "for streams"),
        ({"kafka.isolation.level": "read_all"}, "must be read_committed or read_uncommitted; got 'read_all'"),
        ({"bootstrap": "nowhere"}, "HOST:PORT"),
        ({"subscribe": " , "}, "must be TOPIC,TOPIC,…"),
    ],
)
def test_an_invalid_option_is_one_line(given: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        options(**given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(WrongUse, match="no end"):
        options(streaming=True, **{name: "latest"})


@pytest.mark.parametrize("given", [{"subscribePattern": "("}, {"subscribePattern": ""}, {"assign": '{"a": "b"}'}])
def test_the_topics_to_read_are_required(given: dict[str, str]) -> None:
    with pytest.raises(WrongUse, match=next(iter(given))):
        read_options({"bootstrap": "a:1"} | given, streaming=False)
    with pytest.raises(WrongUse, match="exactly one"):
        read_options({"bootstrap": "a:1"}, streaming=False)
    with pytest.raises(WrongUse, match="bootstrap"):
        read_options(given, streaming=False)


@pytest.mark.feature("PL-04")
def test_a_secured_cluster_has_the_options_of_spark_s_own_source() -> None:
    given = {
        "kafka.security.protocol": "sasl_ssl",
        "KAFKA.SASL.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": 'x.ScramLoginModule required username="a" password="sesame";',
        "kafka.ssl.truststore.location": "/etc/ca.pem",
    }
    access = options(**given).bootstrap
    assert access.security["security.protocol"] == "SASL_SSL"
    assert access.security["ssl.truststore.location"] == "/etc/ca.pem"
    assert "sesame" not in repr(access), "a log may show the options"
    again = options(**access.options).bootstrap
    assert again == access, "a job passes them on to its readers"
    assert pickle.loads(pickle.dumps(access)) == access, "executors get them, secrets included"
