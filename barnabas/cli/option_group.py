"""Groups of options: a command with a dataclass as parameter gets an option for each of its fields.

@dataclass(frozen=True)
class Connection:
    bootstrap: Annotated[str | None, typer.Option("--bootstrap-server")] = None

@app.command("list")
@grouped
def list_(internal: Internal = False, *, connection: Connection) -> None: ...
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, ParamSpec, TypeVar, get_type_hints

P = ParamSpec("P")
T = TypeVar("T")


def grouped(function: Callable[P, T]) -> Callable[..., T]:
    """Decorator that replaces dataclass parameters by their fields, in order, for the parser."""
    hints = get_type_hints(function, include_extras=True)
    options: list[Parameter] = []
    groups: dict[str, type[Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(hints[name]):
            groups[name] = hints[name]
            options.extend(_fields_of(hints[name]))
        else:
            options.append(_option(name, hints[name], parameter.default))
    names = [option.name for option in options]
    assert len(set(names)) == len(names), f"{function.__name__} has a duplicate option: {names}"

    @functools.wraps(function)
    def command(**given: Any) -> T:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        return function(**given)  # type: ignore[call-arg]  # matches the signature read above

    del command.__wrapped__
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]  # typer reads it (PEP 362)
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


def _fields_of(group: type[Any]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    options = []
    for field in dataclasses.fields(group):
        default = Parameter.empty if field.default is dataclasses.MISSING else field.default
        options.append(_option(field.name, hints[field.name], default))
    return options


def _option(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
