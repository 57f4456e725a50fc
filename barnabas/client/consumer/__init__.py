"""Reading: the reader of given partitions, and the consumer that users see over it."""

from barnabas.client.consumer.partition_reader import (
    EARLIEST,
    LATEST,
    ConsumedRecord,
    Consumer,
    ConsumerSettings,
    Isolation,
    list_offsets,
    open_consumer,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "ConsumedRecord",
    "Consumer",
    "ConsumerSettings",
    "Isolation",
    "list_offsets",
    "open_consumer",
]
