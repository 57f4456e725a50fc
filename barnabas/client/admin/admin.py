"""The administrator: all requests of clients that are not about reading and writing records."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial as bind
from types import TracebackType
from typing import Self, Unpack

from barnabas.client.admin.acls import Acls
from barnabas.client.admin.brokers import Brokers
from barnabas.client.admin.calls import Calls
from barnabas.client.admin.configs import Configs
from barnabas.client.admin.group_offsets import GroupOffsets
from barnabas.client.admin.groups import Groups
from barnabas.client.admin.log_dirs import LogDirs
from barnabas.client.admin.partitions import Partitions
from barnabas.client.admin.quotas import Quotas
from barnabas.client.admin.scram import Scram
from barnabas.client.admin.settings import AdminOptions, AdminSettings
from barnabas.client.admin.share_offsets import ShareGroupOffsets
from barnabas.client.admin.tokens import DelegationTokens
from barnabas.client.admin.topics import Topics
from barnabas.client.admin.transactions import Transactions
from barnabas.client.cluster import Cluster
from barnabas.client.errors import IllegalStateException
from barnabas.client.session import open_cluster
from barnabas.client.telemetry.metrics_push import MetricsPush, pushing
from barnabas.runtime.world import World


class Admin(
    Topics,
    Partitions,
    Configs,
    Brokers,
    LogDirs,
    Groups,
    GroupOffsets,
    ShareGroupOffsets,
    Transactions,
    Acls,
    Quotas,
    Scram,
    DelegationTokens,
):
    """Describes and changes a cluster; `async with Admin(bootstrap_servers=...) as admin`. For any number of tasks.

    Requests go to the controller, leader, coordinator or broker that they are for. Retriable errors are retried until
    default.api.timeout.ms; then the call raises TimeoutException with the last error.

    A method for several items returns `Results`: one outcome for each. Methods that change something raise the error of
    the first item that was refused (the other changes have happened all the same), or with `raise_errors=False` leave
    the outcomes to the caller. Methods that only describe raise an item's error when that item is looked up.

    Every method may be cancelled at any time; the administrator can be used afterwards. A cancelled change may have
    happened or not. Brokers are identified by id; `describe_cluster` returns their addresses.
    """

    def __init__(self, *, world: World | None = None, **options: Unpack[AdminOptions]) -> None:
        """ConfigException for a setting that is unknown or invalid. No connection is made before the first call.

        `world` is the real one unless given.
        """
        self.settings = AdminSettings.of(options)
        self._world = world
        self._stack: AsyncExitStack | None = None
        self._push: MetricsPush | None = None

    async def client_instance_id(self, timeout_ms: int | None = None) -> str:
        """The id that brokers give this client to push its metrics (KIP-714), in base64. TimeoutException after
        `timeout_ms` (None: default.api.timeout.ms); UnsupportedVersionException if the brokers take no metrics;
        IllegalStateException with enable_metrics_push=False.
        """
        assert self._calls, "it is open"
        timeout_ms = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return await pushing(self._push).client_instance_id(timeout_ms)

    @classmethod
    def over(cls, cluster: Cluster, default_api_timeout_ms: int = 60_000) -> Admin:
        """An administrator on a cluster view shared with other clients, open as long as that is."""
        admin = cls(bootstrap_servers="of-the-cluster", default_api_timeout_ms=default_api_timeout_ms)
        admin._way = Calls(cluster, default_api_timeout_ms)
        return admin

    async def __aenter__(self) -> Self:
        if self._way is not None:
            raise IllegalStateException("this administrator is open already: create another one")
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(open_cluster(self.settings, self._world))
            self._way = Calls(cluster, self.settings.default_api_timeout_ms)
            if self.settings.enable_metrics_push:
                nursery = await cluster.open_nursery()
                self._push = MetricsPush(cluster, bind(cluster.meters.samples, "admin.client"))
                nursery.start_soon(self._push.run)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes at once: calls of other tasks end with an error. An exception of the block is raised."""
        self._way = None
        stack, self._stack = self._stack, None
        push, self._push = self._push, None
        if push is not None and error is None:
            await push.close()
        if stack is not None:
            await stack.aclose()
