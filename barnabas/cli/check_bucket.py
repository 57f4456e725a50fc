"""`barnabas storage check-bucket`: does an object store keep what tiered storage needs?"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.settings.object_store import StoreSettings


def check_bucket(
    url: Annotated[str | None, typer.Argument(metavar="URL", help="s3://bucket/prefix or file:///path.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A broker's .properties file, for what is not given here.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="S3 server other than Amazon's: http://host:port.")
    ] = None,
    region: Annotated[str | None, typer.Option("--region", help="Region of the bucket; default us-east-1.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Of one request; default 30.")
    ] = None,
) -> None:
    """Check an object store: one line for each property, exit code 1 if one fails.

    Credentials come from the file, or from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    """
    import trio

    from barnabas.cluster.bucket_check import check_bucket as check
    from barnabas.runtime.real import real_world
    from barnabas.runtime.visible import visible
    from barnabas.settings.errors import SettingsError

    try:
        settings = _settings(url, config, endpoint, region, timeout)
    except SettingsError as error:
        raise WrongArgument(str(error)) from None
    failures = 0

    async def run() -> None:
        nonlocal failures
        open_store = real_world().object_store
        assert open_store is not None
        async for finding in check(settings, open_store, random.SystemRandom()):
            failures += finding.verdict == "FAIL"
            typer.echo(visible(str(finding)))

    try:
        trio.run(run)
    except SettingsError as error:
        raise WrongArgument(str(error)) from None
    if failures:
        raise typer.Exit(1)


def _settings(
    url: str | None, config: Path | None, endpoint: str | None, region: str | None, timeout: float | None
) -> StoreSettings:
    """The store of the file with what the options replace. Raises `SettingsError` or `WrongArgument`."""
    from barnabas.runtime.process import ArgumentError, read_config
    from barnabas.settings.object_store import (
        STORE_ENDPOINT,
        STORE_REGION,
        STORE_TIMEOUT,
        STORE_URL,
        store_settings,
    )
    from barnabas.settings.properties import parse_properties

    raw: dict[str, str] = {}
    if config is not None:
        try:
            text = read_config(str(config))
        except ArgumentError as error:
            raise WrongArgument(str(error)) from None
        raw = {key: value for key, (value, _line) in parse_properties(text, str(config)).items()}
    given = {STORE_URL: url, STORE_ENDPOINT: endpoint, STORE_REGION: region}
    raw |= {key: value for key, value in given.items() if value is not None}
    if timeout is not None:
        raw[STORE_TIMEOUT] = str(int(timeout * 1000))
    settings = store_settings(raw)
    if settings is None:
        raise WrongArgument(f"name a store: URL, or --config with a file that sets {STORE_URL}")
    return settings
