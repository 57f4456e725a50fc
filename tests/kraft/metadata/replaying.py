"""Images made of records, for tests."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.metadata.replay import ImageReplay


def applied(
    image: MetadataImage, records: Iterable[object], offset: int, epoch: int, timestamp_ms: int
) -> MetadataImage:
    """The image after `records`, the last of which has `offset`. Raises `ReplayError`."""
    replay = ImageReplay(image)
    for record in records:
        replay.replay(record)
    return replay.finish(offset, epoch, timestamp_ms).after
