"""Core: losses of a downgrade of metadata.version, and the records that remove what is lost (KIP-778, KIP-1155).

Kafka 4.3 refuses each downgrade across a level that changed records. Here it depends on what the cluster really has: a
downgrade that loses nothing is safe; an unsafe one removes what the lower level has no record for, except log
directories and registrations of controllers, on which running nodes rely.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.kraft.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    CORDONED_DIRECTORIES_SINCE,
    DELEGATION_TOKENS_SINCE,
    DIRECTORIES_SINCE,
    SCRAM_SINCE,
)
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.messages.metadata_log import (
    BrokerRegistrationChangeRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
)
from barnabas.protocol.schema import Message

MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of a downgrade, as phrases."""

    removable: list[str]
    """An unsafe downgrade removes it."""
    needed: list[str]
    """Running nodes rely on it: no downgrade removes it."""


def losses(image: MetadataImage, level: int) -> Losses:
    """The losses of `image` at `level`. Eligible leader replicas are not among them: their feature depends on its
    metadata.version and is disabled first."""
    removable: list[str] = []
    needed: list[str] = []
    cluster, others = image.cluster, image.others
    cordoned = [broker.id for broker in cluster.brokers.values() if broker.cordoned_log_directories]
    if level < CORDONED_DIRECTORIES_SINCE and cordoned:
        removable.append(f"cordoned log directories of {_named('broker', map(str, sorted(cordoned)))}")
    if level < DELEGATION_TOKENS_SINCE and others.delegation_tokens:
        count = len(others.delegation_tokens)
        removable.append(f"{count} delegation token{'s' if count > 1 else ''}")
    if level < SCRAM_SINCE and others.scram:
        users = dict.fromkeys(user for user, _ in sorted(others.scram))
        removable.append(f"SCRAM credentials of {_named('user', users)}")
    if level < DIRECTORIES_SINCE and any(broker.log_directories for broker in cluster.brokers.values()):
        needed.append("the log directories of replicas")
    if level < CONTROLLER_REGISTRATION_SINCE and cluster.controllers:
        needed.append("the registrations of controllers")
    return Losses(removable, needed)


def removals(image: MetadataImage, level: int) -> list[Message]:
    """Records that remove what `losses` calls removable; to be written before the level is lowered."""
    records: list[Message] = []
    if level < CORDONED_DIRECTORIES_SINCE:
        records += [
            BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=[])
            for _, broker in sorted(image.cluster.brokers.items())
            if broker.cordoned_log_directories
        ]
    if level < DELEGATION_TOKENS_SINCE:
        records += [RemoveDelegationTokenRecord(token_id=it) for it in sorted(image.others.delegation_tokens)]
    if level < SCRAM_SINCE:
        records += [
            RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
            for name, mechanism in sorted(image.others.scram)
        ]
    return records


def _named(noun: str, names: Iterable[str]) -> str:
    listed = list(names)
    rest = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    return f"{noun}{'s' if len(listed) > 1 else ''} {', '.join(listed[:MAX_NAMED])}{rest}"
