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
ExecStart={program} {command}
{reload}Restart=on-failure
RestartSec=1
# A wrong setting does not become right by a restart.
RestartPreventExitStatus=2
KillMode={kill_mode}
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


_RELOAD = """\
# Restarts the brokers one by one.
ExecReload=/bin/kill -HUP $MAINPID
"""
# If the process that keeps the brokers dies they go on, and its successor keeps them: hence KillMode=process.


def systemd(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", exists=True, help="The node's .properties file.")],
    cells: Annotated[
        int | None, typer.Option("--cells", metavar="N", min=1, help="As many brokers, by `barnabas host`.")
    ] = None,
    user: Annotated[str, typer.Option("--user", help="User and group that the node runs as.")] = "barnabas",
    program: Annotated[
        Path | None, typer.Option("--program", metavar="FILE", help="The barnabas command; default: this one.")
    ] = None,
) -> None:
    """Print a systemd unit that runs a node, or all brokers of a host."""
    from barnabas.settings.controller import ControllerSettings

    settings = node_config.load(config)
    role = "controller" if isinstance(settings, ControllerSettings) else "broker"
    if settings.is_combined:
        role = "node"
    if cells is not None and role != "broker":
        raise WrongArgument(f"{config}: --cells is for brokers; process.roles={','.join(settings.process_roles)}")
    path = _quoted(config.absolute())
    for directory in settings.all_log_dirs:
        if not Path(directory).is_absolute():
            raise WrongArgument(f"{config}: log directories must be absolute paths for a service; got {directory!r}")
    typer.echo(
        _UNIT.format(
            name=f"{role}-{settings.node_id}" if cells is None else "host",
            command=f"{role} {path}" if cells is None else f"host {path} --cells {cells}",
            reload="" if cells is None else _RELOAD,
            kill_mode="mixed" if cells is None else "process",
            user=user,
            program=_quoted(program or _this_program()),
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
