"""Options and conversions shared by several commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cluster.errors import WrongArgument

DEFAULT_DATA = Path(".cluster")

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Directory of the local cluster.")]
BasePort = Annotated[
    int | None,
    typer.Option(
        "--base-port",
        metavar="N",
        help="First port: brokers on N, N+1, N+2, controllers from N+100; default: the previous one, or 9092.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Kafka setting for every node; repeatable."),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        show_envvar=False,
        metavar="HOST:PORT,…",
        help="Bootstrap servers; default: the local cluster in --data.",
    ),
]


@dataclass(frozen=True)
class LocalOptions:
    """Options for a cluster on this machine that a command uses or starts."""

    data: Data = DEFAULT_DATA
    base_port: BasePort = None
    settings: Settings = None


def program() -> str:
    """The command as the user can type it in the current directory."""
    return os.path.relpath(sys.argv[0]) if os.sep in sys.argv[0] else "barnabas"


def overrides_from(texts: Sequence[str] | None) -> Mapping[str, str]:
    """Parses `KEY=VALUE` texts; warns on standard error about keys unknown to Kafka. Raises `WrongArgument`."""
    from barnabas.settings.authorization import KEYS_OF_AUTHORIZER
    from barnabas.settings.definitions import closest_key, find_broker_key, is_plugin_key

    overrides = {}
    for text in texts or []:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise WrongArgument(f"--set must be KEY=VALUE, e.g. --set num.partitions=3; got {text!r}")
        if find_broker_key(key) is None and not is_plugin_key(key) and key not in KEYS_OF_AUTHORIZER:
            near = closest_key(key)
            warning = f"warning: {key} is not a setting of Kafka 4.3" + (f"; did you mean {near}?" if near else "")
            typer.echo(warning, err=True)
        overrides[key] = value
    return overrides


def pairs_from(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Parses `NAME=VALUE` texts. Raises `WrongArgument`."""
    pairs = {}
    for text in texts or []:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise WrongArgument(f"{option} must be NAME=VALUE; got {text!r}")
        pairs[name] = value
    return pairs


def bootstrap_from(bootstrap: str | None, data: Path) -> list[tuple[str, int]]:
    """Bootstrap servers as (host, port). Raises `WrongArgument`."""
    if bootstrap is None:
        base = _base_port_of(data)
        return [("127.0.0.1", base + index) for index in range(3)]
    addresses = []
    for text in bootstrap.split(","):
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise WrongArgument(f"--bootstrap-server must be HOST:PORT; got {text!r}")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def _base_port_of(data: Path) -> int:
    try:
        saved = json.loads((data / "cluster.json").read_text())
        return int(saved["base_port"])
    except (OSError, ValueError, KeyError, TypeError):
        return 9092
