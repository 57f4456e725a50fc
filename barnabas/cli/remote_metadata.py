"""`barnabas storage restore-remote-metadata`: a lost `__remote_log_metadata` is made again from the store."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.chosen_store import ChosenStore
from barnabas.cli.connection import Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import complain, show_text
from barnabas.cli.session import run_connected
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.broker.remote.segment_store import RemoteSegmentStore
    from barnabas.cluster.remote_metadata import Restoration
    from barnabas.settings.object_store import StoreSettings
    from barnabas.settings.remote_metadata import RemoteMetadataSettings

_SHOWN = 5
"""Partitions that a refusal names."""


@dataclass(frozen=True)
class Extent:
    """Options on what is written."""

    execute: Annotated[bool, typer.Option("--execute", help="Write the records; otherwise they are only listed.")] = (
        False
    )
    add: Annotated[
        bool, typer.Option("--add", help="Also for partitions of which the metadata has records: add what they lack.")
    ] = False


@grouped
def restore_remote_metadata(*, store: ChosenStore, extent: Extent, connection: Connection) -> None:
    """Write the records of segments that are in the store and that __remote_log_metadata does not know.

    Writes nothing without --execute. Segments of topics that the cluster does not have are left alone. Restart the
    brokers afterwards, one by one. Credentials of the store come from the file, or from AWS_ACCESS_KEY_ID and
    AWS_SECRET_ACCESS_KEY.
    """
    from barnabas.runtime.object_store import StoreError
    from barnabas.settings.errors import SettingsError
    from barnabas.settings.remote_metadata import RemoteMetadataSettings

    try:
        raw = store.raw()
        opened, topic = store.settings(raw), RemoteMetadataSettings.of(raw)
    except SettingsError as error:
        raise WrongArgument(str(error)) from None

    async def work() -> Restoration:
        try:
            return await _restore(connection, opened, topic, extent)
        except StoreError as error:
            raise ClusterError(str(error)) from None

    found = run_connected(connection, work)
    verb = "are" if extent.execute else "would be"
    text = f"{len(found.segments)} segments {verb} added to __remote_log_metadata, which knew {found.known}"
    if found.segments and not extent.execute:
        text += ": run the command again with --execute"
    show_text(text)


async def _restore(
    connection: Connection, opened: StoreSettings, topic: RemoteMetadataSettings, extent: Extent
) -> Restoration:
    from barnabas.broker.remote.segment_store import RemoteSegmentStore
    from barnabas.client.admin import Admin, AdminSettings
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.settings import ConsumerSettings
    from barnabas.cluster import remote_metadata
    from barnabas.runtime.real import real_world
    from barnabas.settings.errors import SettingsError

    open_store = real_world().object_store
    assert open_store is not None
    try:
        store = RemoteSegmentStore(open_store(opened))
    except SettingsError as error:
        raise WrongArgument(str(error)) from None
    try:
        settings = connection.settings(AdminSettings.model_fields, default_api_timeout_ms=connection.timeout_ms)
        async with Admin(**settings) as admin:
            own: dict[str, Any] = {"auto_offset_reset": "earliest", "default_api_timeout_ms": connection.timeout_ms}
            async with Consumer(**connection.settings(ConsumerSettings.model_fields, **own)) as consumer:
                found = await remote_metadata.compare(store, admin, consumer)
            if found.partly_known and not extent.add:
                raise ClusterError(_refusal(found))
            await _describe(store, found)
            if extent.execute and found.segments:
                await remote_metadata.create_topic(admin, topic)
                await _publish(connection, found)
        return found
    finally:
        await store.close()


async def _describe(store: RemoteSegmentStore, found: Restoration) -> None:
    from barnabas.cluster import remote_metadata

    if found.elsewhere:
        complain(f"{len(found.elsewhere)} partitions in the store are of topics that this cluster does not have")
    for key in found.compacted:
        complain(
            f"{key.topic}-{key.partition}: left out: the objects of a compacted topic do not show what was replaced"
        )
    await remote_metadata.describe(store, found, int(time.time() * 1000))
    for line in found.left_out:
        complain(line)
    for key in found.lacking:
        them = [each for each in found.segments if each.key == key]
        if them:
            last = max(each.end_offset for each in them)
            show_text(f"{key.topic}-{key.partition}: {len(them)} segments, offsets {them[0].start_offset} to {last}")


async def _publish(connection: Connection, found: Restoration) -> None:
    from barnabas.client.producer import Producer
    from barnabas.client.producer.settings import ProducerSettings
    from barnabas.cluster import remote_metadata

    known = ProducerSettings.model_fields
    async with Producer(**connection.settings(known, **remote_metadata.PRODUCER)) as producer:
        await remote_metadata.publish(producer, found.segments)


def _refusal(found: Restoration) -> str:
    names = [f"{key.topic}-{key.partition}" for key in found.partly_known]
    listed = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    count = sum(len(found.lacking[key]) for key in found.partly_known)
    return (
        f"__remote_log_metadata has records of {listed}, and does not know {count} segments of them that are in the "
        "store: --add adds these"
    )
