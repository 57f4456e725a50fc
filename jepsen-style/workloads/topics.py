"""Topics that are made when they are needed first, by whichever process comes to need them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clients.client import ClientError, WorkClient

EXISTS = "TopicExistsException"


class Topics:
    """The topics of one run, all with the same settings."""

    def __init__(self, partitions: int, replicas: int, configs: Mapping[str, str] | None = None) -> None:
        self._partitions = partitions
        self._replicas = replicas
        self._configs = dict(configs or {})
        self._made: dict[str, None] = {}

    async def need(self, client: WorkClient, names: Iterable[str]) -> None:
        """They are there when this returns. ClientError, always a definite one: nothing was written to them."""
        for name in names:
            if name in self._made:
                continue
            try:
                await client.create_topic(name, self._partitions, self._replicas, self._configs)
            except ClientError as error:
                if error.name != EXISTS:
                    raise ClientError(error.name, error.text, definite=True, fatal=error.fatal) from error
            self._made[name] = None
