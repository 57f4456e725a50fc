"""Writes docs/settings.md from the models in settings/ and from the sentences in docs/settings.tsv.

A key has an effect if a node acts on it (`settings.node.acts_on`), or, for topics and groups, if it has a sentence.
Every such key needs a sentence, except broker keys that only give a topic config its default.

Usage: `python docs/make_settings.py`
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.runtime.http_token import ALLOWED
from barnabas.settings.authorization import ALLOW_EVERYONE, SUPER_USERS
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.controller import ControllerSettings
from barnabas.settings.definitions import KeyDefinition, Scope, definitions
from barnabas.settings.group import GROUP_KEYS
from barnabas.settings.host import HOST, MOST_HOST_BYTES, SHARED_LISTENERS
from barnabas.settings.node import (
    ADVERTISED_AS_SEEN,
    HTTP_LISTENER,
    HTTP_TOKEN_FILE,
    LEAST_MEMORY_BYTES,
    LEGACY_CLIENTS,
    MEMORY_LIMIT,
    QUOTA_SCOPE,
    acts_on,
)
from barnabas.settings.object_store import (
    STORE_ACCESS_KEY,
    STORE_ENDPOINT,
    STORE_REGION,
    STORE_RETRIES,
    STORE_SECRET_KEY,
    STORE_TIMEOUT,
    STORE_URL,
    STORE_VERIFY,
)
from barnabas.settings.topic import BROKER_SYNONYMS, COMPACTED_TIERS

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "settings.md"
SENTENCES = DOCS / "settings.tsv"

FILE_ONLY = {
    "listener.security.protocol.map",
    "listeners",
    "num.recovery.threads.per.data.dir",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.mechanism.inter.broker.protocol",
}
"""Keys that Kafka alters while a broker runs, and that are read from the file alone here."""

TOPIC_KEY_OF = {name: topic_key for topic_key, names in BROKER_SYNONYMS.items() for name, _factor in names}

HEAD = f"""\
# Settings

Made by `make settings` from the models in `settings/` and the sentences in `docs/settings.tsv`. Keys, types, defaults
and allowed values are those of Apache Kafka 4.3. A node refuses a value that is not allowed, and logs a warning for a
key that is unknown or has no effect.

A node reads its keys from a `.properties` file; `--set KEY=VALUE` wins over the file. The column *altered* has the
scope in which a key can be altered while brokers run, with `barnabas configs`, `kafka-configs.sh` or the admin client:
for one broker (*per-broker*), or also for all (*cluster-wide*). *file only* means that Kafka applies an altered value
while it runs, and this broker only the value of its file.

## Keys that Kafka does not have

| key | default | allowed | effect |
| --- | --- | --- | --- |
| `{ADVERTISED_AS_SEEN}` | none | names of listeners | Clients of these listeners get, as the address of this \
broker, the one that they connected to: for containers and other hosts, without `advertised.listeners`. \
An address that is mapped on the way (a published port with another number, a tunnel) is unknown to the broker. |
| `{HTTP_LISTENER}` | not served | host:port | Address of health, metrics and decisions over HTTP. |
| `{HTTP_TOKEN_FILE}` | none | {ALLOWED} | Clients of these pages need this token, \
except for `/healthz` and the status of `/readyz` ([metrics.md](metrics.md#protection)). Read when the node starts. |
| `{MEMORY_LIMIT}` | a quarter of the machine's memory, at most 1 GiB | {LEAST_MEMORY_BYTES} or more | \
Bytes of memory that clients may make the node use. |
| `{LEGACY_CLIENTS}` | false | true or false | Serve clients before Kafka 0.11: Produce 0 to 2, Fetch 0 to 3, \
ListOffsets 0 and OffsetCommit 1 ([old-clients.md](old-clients.md)). |
| `{QUOTA_SCOPE}` | broker | broker or cluster | `cluster`: `producer_byte_rate` and `consumer_byte_rate` are \
those of all brokers together ([quotas.md](quotas.md)). The same on each broker. |
| `{HOST}` | none | at most {MOST_HOST_BYTES} bytes | Name of the host that this broker shares with others \
([cells.md](cells.md)). A partition never gets two replicas on one host. |
| `{SHARED_LISTENERS}` | none | NAME://host:port, … | Addresses that all brokers of a host listen on together. \
A connection is served as one of the listener with the same name. |
| `{STORE_URL}` | none | `file:///path` or `s3://bucket/prefix` | The object store of tiered storage: \
a directory that all brokers see, or a bucket ([tiered.md](tiered.md)). The same on each broker. |
| `{COMPACTED_TIERS}` | false | true or false | Compacted topics may be tiered \
([tiered.md](tiered.md#compacted-topics)). The same on all nodes, controllers as well. |
| `{STORE_ENDPOINT}` | Amazon's | http(s)://host:port | Address of another S3 server. |
| `{STORE_REGION}` | us-east-1 | a name | Region of the bucket. |
| `{STORE_ACCESS_KEY}`, `{STORE_SECRET_KEY}` | from the environment | both or neither | Credentials for the bucket. \
They are neither logged nor described. |
| `{STORE_TIMEOUT}` | 30000 | 100 to 600000 | Timeout of one request to the store. |
| `{STORE_RETRIES}` | 3 | 0 to 20 | Further attempts of a request that failed in a way that may pass. |
| `{STORE_VERIFY}` | checksum | checksum or full | The proof of a copy: compare the store's checksum, or read \
all bytes back. |

## Keys of the authorizer

Kafka passes these keys to the class of `authorizer.class.name`.

| key | default | allowed | effect |
| --- | --- | --- | --- |
| `{SUPER_USERS}` | none | `Type:name`, separated by `;` | Principals that may do everything. |
| `{ALLOW_EVERYONE}` | false | true or false | \
Everybody may do everything with a resource that has no access control list. |

The configs `barnabas.…` of topics and groups, and `errors.deadletterqueue.…` (KIP-1191, later than 4.3), are below.
"""


def sentences() -> dict[tuple[str, str], str]:
    """(scope, key) to the sentence about its effect."""
    rows = [line.split("\t") for line in SENTENCES.read_text("utf-8").splitlines()[1:]]
    return {(scope, key): text for scope, key, text in rows}


def page() -> str:
    """The whole page. Raises KeyError for a key with an effect and without a sentence."""
    known = sentences()
    nodes = definitions("broker")
    parts = [HEAD, "\n## Keys of nodes\n"]
    for title, keys in (
        ("Brokers and controllers", _acted_on(nodes, broker=True, controller=True)),
        ("Brokers alone", _acted_on(nodes, broker=True, controller=False)),
        ("Controllers alone", _acted_on(nodes, broker=False, controller=True)),
    ):
        parts.append(f"\n### {title}\n\n")
        parts.append(_table((key, known["broker", key.name]) for key in keys if key.name not in TOPIC_KEY_OF))
    parts.append(
        "\n### Defaults of topics\n\nThe value of topics that have none of their own. If several keys give the"
    )
    parts.append(" default of one topic config, the first that is set wins.\n\n")
    parts.append(_table(_topic_defaults(nodes)))
    parts.append("\n## Keys of topics\n\n")
    parts.append(_table(_with_sentences("topic", known)))
    parts.append("\n## Keys of running brokers\n\nThese are set for a broker or for all, never in a file.\n\n")
    parts.append(_table(_with_sentences("dynamic", known)))
    parts.append("\n## Keys of groups\n\nAn override must be within the bounds of the broker.\n\n")
    parts.append(_table(_with_sentences("group", known)))
    parts.append("\n## Subscriptions to clients' metrics\n\n")
    parts.append(_table(_with_sentences("client-metrics", known)))
    parts.append(
        "\n## No effect here\n\nThese keys are read, and refused with a value that Kafka does not allow. They have no"
    )
    parts.append(" other effect.\n")
    for title, keys in (
        ("nodes", [key for key in nodes.values() if not _has_effect(key.name)]),
        ("topics", _without_sentences("topic", known)),
        ("groups", _without_sentences("group", known)),
    ):
        parts.append(f"\n### Of {title}\n\n" + _no_effect(keys))
    return "".join(parts)


def _no_effect(keys: Iterable[KeyDefinition]) -> str:
    """A table of keys by their first word."""
    families: dict[str, list[str]] = {}
    for key in keys:
        if not key.internal:
            families.setdefault(key.name.partition(".")[0], []).append(f"`{key.name}` ({_default(key)})")
    rows = [f"| {family} | {', '.join(names)} |" for family, names in sorted(families.items())]
    return "\n".join(["| | keys (default) |", "| --- | --- |", *rows]) + "\n"


def _has_effect(name: str) -> bool:
    return acts_on(BrokerSettings, name) or acts_on(ControllerSettings, name)


def _acted_on(nodes: dict[str, KeyDefinition], *, broker: bool, controller: bool) -> Iterator[KeyDefinition]:
    """Keys with an effect in exactly these roles."""
    for name, key in nodes.items():
        if (acts_on(BrokerSettings, name), acts_on(ControllerSettings, name)) == (broker, controller):
            yield key


def _topic_defaults(nodes: dict[str, KeyDefinition]) -> Iterator[tuple[KeyDefinition, str]]:
    for name, topic_key in TOPIC_KEY_OF.items():
        if _has_effect(name):
            yield nodes[name], f"Default of `{topic_key}`."


def _with_sentences(scope: Scope, known: dict[tuple[str, str], str]) -> Iterator[tuple[KeyDefinition, str]]:
    for name, key in definitions(scope).items():
        if (scope, name) in known:
            synonym = GROUP_KEYS[name].synonym if scope == "group" else None
            yield key, known[scope, name] + (f" Default: `{synonym}` of the broker." if synonym else "")


def _without_sentences(scope: Scope, known: dict[tuple[str, str], str]) -> list[KeyDefinition]:
    return [key for name, key in definitions(scope).items() if (scope, name) not in known]


def _table(rows: Iterable[tuple[KeyDefinition, str]]) -> str:
    lines = ["| key | default | allowed | altered | effect |", "| --- | --- | --- | --- | --- |"]
    for key, text in rows:
        allowed = key.allowed_in_words() or key.type
        lines.append(f"| `{key.name}` | {_default(key)} | {allowed} | {_altered(key)} | {text} |")
    return "\n".join(lines) + "\n"


def _altered(key: KeyDefinition) -> str:
    if key.scope != "broker":
        return "yes"
    if key.name in FILE_ONLY:
        return "file only"
    return "no" if key.update == "read-only" else key.update


def _default(key: KeyDefinition) -> str:
    if key.required:
        return "must be set"
    if key.default is None:
        return "none"
    return f"`{key.default}`" if key.default else "empty"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"docs/{PAGE.name} is written")
