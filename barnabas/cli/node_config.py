"""The option that names the configuration file of a node, and the settings in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.settings.node import NodeSettings

Config = Annotated[Path, typer.Option("--config", "-c", help="The node's .properties file.")]


def load(config: Path) -> NodeSettings:
    """Reads the settings of a node, by process.roles; of a combined one those of the controller. Raises
    `WrongArgument`."""
    from barnabas.runtime.process import ArgumentError, read_config
    from barnabas.settings.broker import load_broker_settings
    from barnabas.settings.combined import is_combined, load_combined_settings, roles_in
    from barnabas.settings.controller import load_controller_settings
    from barnabas.settings.errors import SettingsError

    try:
        text = read_config(str(config))
        roles = roles_in(text, str(config))
        if is_combined(roles):
            return load_combined_settings(text, str(config))[0].controller
        if roles == ["controller"]:
            return load_controller_settings(text, str(config))[0]
        return load_broker_settings(text, str(config))[0]
    except (ArgumentError, SettingsError) as error:
        raise WrongArgument(str(error)) from None
