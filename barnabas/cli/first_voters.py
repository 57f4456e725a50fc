"""Options of `barnabas storage format` and `restore` that name the first voters of a quorum (KIP-853)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.kraft.raft.voters import VoterSet
    from barnabas.settings.node import NodeSettings


@dataclass(frozen=True)
class WantedVoters:
    """Options that name the voters of a new or a restored quorum."""

    standalone: Annotated[
        bool, typer.Option("--standalone", "-s", help="This controller is the only voter; others are added later.")
    ] = False
    initial_controllers: Annotated[
        str | None,
        typer.Option(
            "--initial-controllers",
            "-I",
            metavar="ID@HOST:PORT:DIRECTORY,…",
            help="The first voters, with the ids of their metadata directories.",
        ),
    ] = None


def first_voters(
    settings: NodeSettings,
    wanted: WantedVoters,
    joins: bool,
    directory_id: bytes | None = None,
) -> VoterSet | None:
    """The voters of a new quorum; None if they are in the settings, or if this node joins one. `directory_id` is that
    of this node's metadata directory if it has one already.

    Raises `WrongArgument` or `FormatError`."""
    from barnabas.kraft.initial_controllers import parse_initial_controllers, standalone_controller
    from barnabas.kraft.raft.voters import Endpoint
    from barnabas.runtime.uuids import random_uuid
    from barnabas.settings.controller import ControllerSettings

    standalone, initial_controllers = wanted.standalone, wanted.initial_controllers
    listener_name = settings.controller_listener_names[0]
    if settings.controller_quorum_voters and (standalone or initial_controllers is not None):
        raise WrongArgument(
            "controller.quorum.voters is set, which excludes --standalone and --initial-controllers; "
            "set controller.quorum.bootstrap.servers instead"
        )
    if initial_controllers is not None:
        return parse_initial_controllers(initial_controllers, listener_name)
    if standalone:
        listeners = settings.advertised_listeners or settings.listeners
        own = next((each for each in listeners if each.name == listener_name), None)
        if own is None or not isinstance(settings, ControllerSettings):
            raise WrongArgument("--standalone is for controllers")
        own_id = random_uuid(random.SystemRandom()) if directory_id is None else directory_id
        return standalone_controller(settings.node_id, Endpoint(own.name, own.host, own.port), own_id)
    if isinstance(settings, ControllerSettings) and not settings.controller_quorum_voters and not joins:
        raise WrongArgument(
            "controller.quorum.voters is not set on this controller: one of --standalone, --initial-controllers and "
            "--no-initial-controllers is needed"
        )
    return None
