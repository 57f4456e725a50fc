"""Options that name an object store, shared by the commands that open one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.settings.object_store import StoreSettings


@dataclass(frozen=True)
class ChosenStore:
    """A store by its URL, or that of a broker's file."""

    url: Annotated[str | None, typer.Argument(metavar="URL", help="s3://bucket/prefix or file:///path.")] = None
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A broker's .properties file, for what is not given here.")
    ] = None
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="S3 server other than Amazon's: http://host:port.")
    ] = None
    region: Annotated[str | None, typer.Option("--region", help="Region of the bucket; default us-east-1.")] = None

    def raw(self) -> dict[str, str]:
        """Settings of the file. Raises `WrongArgument`, `SettingsError`."""
        from barnabas.runtime.process import ArgumentError, read_config
        from barnabas.settings.properties import parse_properties

        if self.config is None:
            return {}
        try:
            text = read_config(str(self.config))
        except ArgumentError as error:
            raise WrongArgument(str(error)) from None
        return {key: value for key, (value, _line) in parse_properties(text, str(self.config)).items()}

    def settings(self, raw: dict[str, str], timeout: float | None = None) -> StoreSettings:
        """The store of the file's settings with what the options replace; `timeout` in seconds. Raises
        `SettingsError`, `WrongArgument`."""
        from barnabas.settings.object_store import (
            STORE_ENDPOINT,
            STORE_REGION,
            STORE_TIMEOUT,
            STORE_URL,
            store_settings,
        )

        given = {STORE_URL: self.url, STORE_ENDPOINT: self.endpoint, STORE_REGION: self.region}
        raw = raw | {key: value for key, value in given.items() if value is not None}
        if timeout is not None:
            raw[STORE_TIMEOUT] = str(int(timeout * 1000))
        settings = store_settings(raw)
        if settings is None:
            raise WrongArgument(f"name a store: URL, or --config with a file that sets {STORE_URL}")
        return settings
