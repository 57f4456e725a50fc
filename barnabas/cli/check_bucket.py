"""`barnabas storage check-bucket`: does an object store keep what tiered storage needs?"""

from __future__ import annotations

import random
from typing import Annotated

import typer

from barnabas.cli.chosen_store import ChosenStore
from barnabas.cli.option_group import grouped
from barnabas.cluster.errors import WrongArgument


@grouped
def check_bucket(
    *,
    store: ChosenStore,
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
        settings = store.settings(store.raw(), timeout)
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
