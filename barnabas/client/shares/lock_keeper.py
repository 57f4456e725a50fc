"""The task that looks after acquisition locks: renewals of held records, and decisions that no fetch takes along."""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.client.errors import IllegalStateException
from barnabas.client.shares.deliveries import Deliveries, Delivery, DeliveryState, Due
from barnabas.client.shares.settings import ShareConsumerSettings
from barnabas.client.shares.share_session import Result
from barnabas.protocol.acknowledge_type import AcknowledgeType


class LockKeeper:
    """The `Holder` of all records of one consumer."""

    def __init__(
        self,
        deliveries: Deliveries,
        settings: ShareConsumerSettings,
        now_ms: Callable[[], int],
        on_due: Callable[[Due], None],
        on_result: Callable[[Result], None],
    ) -> None:
        """`on_due` sends what waits; `on_result` gets the results of what cannot be sent."""
        self._deliveries = deliveries
        self._settings = settings
        self._now_ms = now_ms
        self._on_due = on_due
        self._on_result = on_result
        self._woken = trio.Event()

    def decide(self, delivery: Delivery, kind: AcknowledgeType) -> None:
        """IllegalStateException if it was decided before."""
        result = self._deliveries.decide(delivery, kind)
        if result is not None:
            self._on_result(result)
        self._woken.set()

    def hold(self, delivery: Delivery) -> None:
        if not self._settings.is_explicit:
            raise IllegalStateException('`async with record` needs share_acknowledgement_mode="explicit"')
        self._deliveries.hold(delivery)
        self._woken.set()

    def let_go(self, delivery: Delivery, error: BaseException | None) -> None:
        if delivery.state is DeliveryState.DECIDED:
            return
        if error is None:
            self.decide(delivery, AcknowledgeType.ACCEPT)
        elif isinstance(error, self._settings.reject_on):
            self.decide(delivery, AcknowledgeType.REJECT)
        else:
            self.decide(delivery, AcknowledgeType.RELEASE)

    async def run(self) -> None:
        while True:
            self._woken = trio.Event()
            due = self._deliveries.look_after_locks(self._now_ms())
            if due.renewals or due.decisions:
                self._on_due(due)
            at_ms = self._deliveries.due_ms
            wait_ms = float("inf") if at_ms is None else max(1, at_ms - self._now_ms())
            with trio.move_on_after(wait_ms / 1000):
                await self._woken.wait()
