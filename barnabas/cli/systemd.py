"""`barnabas systemd`: prints a systemd unit for a node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli import node_config
from barnabas.cluster.errors import WrongArgument

STOP_SECONDS = 40
"""A broker moves its leaderships for up to 30 s before it exits."""
OPEN_FILES = 100_000

_UNIT = """\
# /etc/systemd/system/barnabas-{name}.service
[Unit]
Description=Barnabas {name}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
Group={user}
ExecStart={program} {role} {config}
Restart=on-failure
RestartSec=1
# A wrong setting does not become right by a restart.
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec={stop_seconds}
LimitNOFILE={open_files}
UMask=0077

# The node writes to its log directories only, and needs no privilege.
ReadWritePaths={directories}
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX

[Install]
WantedBy=multi-user.target
"""


def systemd(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", exists=True, help="The node's .properties file.")],
    user: Annotated[str, typer.Option("--user", help="User and group that the node runs as.")] = "barnabas",
    program: Annotated[
        Path | None, typer.Option("--program", metavar="FILE", help="The barnabas command; default: this one.")
    ] = None,
) -> None:
    """Print a systemd unit that runs a node."""
    from barnabas.settings.controller import ControllerSettings

    settings = node_config.load(config)
    role = "controller" if isinstance(settings, ControllerSettings) else "broker"
    if settings.is_combined:
        role = "node"
    for directory in settings.all_log_dirs:
        if not Path(directory).is_absolute():
            raise WrongArgument(f"{config}: log directories must be absolute paths for a service; got {directory!r}")
    typer.echo(
        _UNIT.format(
            name=f"{role}-{settings.node_id}",
            role=role,
            user=user,
            program=_quoted(program or _this_program()),
            config=_quoted(config.absolute()),
            directories=" ".join(_quoted(Path(directory)) for directory in settings.all_log_dirs),
            stop_seconds=STOP_SECONDS,
            open_files=OPEN_FILES,
        ),
        nl=False,
    )


def _this_program() -> Path:
    """The script beside the interpreter, as pip installs it."""
    return Path(sys.executable).parent / "barnabas"


def _quoted(path: Path) -> str:
    """A path as one word of a unit file. Raises `WrongArgument` for characters that no quoting covers."""
    text = str(path)
    if not text.isprintable():
        raise WrongArgument(f"a path in a unit must be printable; got {text!r}")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != text or " " in text else text
