"""Plain words of `barnabas dev` are read as the parser reads them, and all others are left to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import barnabas.cli.dev
from barnabas.cli.app import command
from barnabas.cli.dev_words import plain_options
from barnabas.dev.options import DevOptions
from tests.examples import examples

PORTS = st.sampled_from(["0", "9092", "65000", "65001", "-1", "09", "1_000", "١", "x", " 7", "999999"])
TEXTS = st.sampled_from(["orders", "orders:3", "orders:0", "a:b", "127.0.0.1", "0.0.0.0", "::1", "-x", "--secure"])
NAMES = st.sampled_from(["--port", "--http-port", "--host", "--dir", "--topic", "--secure", "--set", "extra"])


@st.composite
def words(draw: st.DrawFn) -> list[str]:
    found: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        name = draw(NAMES)
        value = draw(PORTS if name.endswith("port") else TEXTS)
        if name in ("--secure", "extra"):
            found.append(name)
        else:
            found += draw(st.sampled_from([[name, value], [f"{name}={value}"], [name]]))
    return found


def parsed(arguments: list[str]) -> DevOptions:
    """The options as the parser of all commands reads them."""
    got: list[DevOptions] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(barnabas.cli.dev, "run_in_foreground", got.append)
        command(["dev"]).main(["dev", *arguments], prog_name="barnabas", standalone_mode=False)
    [options] = got
    return options


@settings(max_examples=examples(200))
@given(words())
def test_plain_words_mean_what_they_mean_to_the_parser(arguments: list[str]) -> None:
    plain = plain_options(arguments)
    if plain is not None:
        assert plain == parsed(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--port", "0"],
        ["--topic", "orders:3", "--topic=flights", "--secure"],
        ["--host", "0.0.0.0", "--http-port", "9644", "--dir", "data"],
        ["--port", "1", "--port=2"],
    ],
)
def test_common_words_are_plain(arguments: list[str]) -> None:
    assert plain_options(arguments) == parsed(arguments)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--registry", "0"], ["--set", "a=b"], ["--port"], ["--port", "x"], ["--topic", "a:b"], ["x"]],
)
def test_other_words_are_left_to_the_parser(arguments: list[str]) -> None:
    assert plain_options(arguments) is None
