"""The authorizer of a node, kept up to date with the metadata log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping

import trio

from barnabas.kraft.authorizer.audit import Audit
from barnabas.kraft.authorizer.compiled import CompiledAcls
from barnabas.kraft.authorizer.compiling import STEP_CHANGES, Change, changed
from barnabas.kraft.authorizer.standard import StandardAuthorizer
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.families import Family
from barnabas.runtime.world import World
from barnabas.settings.node import NodeSettings

log = logging.getLogger("authorizer")


class Authorization:
    """One per node; the roles of a combined node share it. Few changes of ACLs are compiled at once, many in a task."""

    def __init__(self, settings: NodeSettings, world: World, nursery: trio.Nursery, decisions: Decisions) -> None:
        self.authorizer = StandardAuthorizer(
            settings.super_users,
            Audit(decisions, world.monotonic.now_ms),
            allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
        )
        self._early_start = frozenset(settings.early_start_listeners)
        self._nursery = nursery
        self._waiting: deque[Mapping[bytes, Change]] = deque()
        """Changes in order; a task compiles the first."""
        self._is_caught_up = False
        self._loaded = trio.Event()

    def put(self, delta: MetadataDelta, *, is_caught_up: bool) -> None:
        """Take over a step of the metadata. `is_caught_up`: nothing that was committed before the node started is
        missing; from then on it is ready."""
        self._is_caught_up = self._is_caught_up or is_caught_up
        if delta.changed_acls:
            before = delta.before.others.acls
            changes = {id_: (before.get(id_), after) for id_, after in delta.changed_acls.items()}
            self._waiting.append(changes)
            if len(self._waiting) > 1:
                return
            if len(changes) > STEP_CHANGES:
                self._nursery.start_soon(self._compile)
                return
            for _ in self._compiling():
                pass
        if not self._waiting:
            self._look()

    def _compiling(self) -> Iterator[None]:
        """Compile the first waiting changes."""
        acls: CompiledAcls = yield from changed(self.authorizer.acls, self._waiting[0].values())
        self.authorizer.put(acls)
        self._waiting.popleft()

    async def _compile(self) -> None:
        while self._waiting:
            for _ in self._compiling():
                await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
        self._look()

    def _look(self) -> None:
        if self._is_caught_up and not self.authorizer.is_loaded:
            self.authorizer.is_loaded = True
            self._loaded.set()
            log.info("%d access control lists are loaded", self.authorizer.acls.count)

    async def ready_for(self, listener_name: str) -> None:
        """Wait until the listener may open: only an early one opens before the ACLs are loaded."""
        if listener_name not in self._early_start:
            await self._loaded.wait()

    def families(self) -> Iterator[Family]:
        """Metrics, named as Kafka's."""
        authorizer = self.authorizer
        prefix = "kafka_server_plugins_"
        yield Family.of("gauge", prefix + "acls_total_count", "Access control lists.", authorizer.acls.count)
        for name, text, value in (
            ("request", "Checks of rights.", authorizer.allowed + authorizer.denied),
            ("allowed", "Checks of rights that were passed.", authorizer.allowed),
            ("denied", "Checks of rights that were not passed.", authorizer.denied),
        ):
            yield Family.of("counter", f"{prefix}authorization_{name}", text, value)
