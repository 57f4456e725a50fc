"""A function under construction: the common part of readers and writers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.protocol.structs import (
    FieldSpec,
    Struct,
    WireType,
    parse_versions,
)

# code and size of each type of fixed size
FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}


STEP_ELEMENTS = 128
"""Elements of arrays that one step of a stepped function reads or writes: a quarter of a millisecond."""


class Source:
    """The lines of a function under construction, its names, and the run of fixed-size fields that is not written
    yet. A stepped function is a generator that yields after every `STEP_ELEMENTS` elements."""

    def __init__(self, version: int, flexible_from: int | None, *, stepped: bool = False) -> None:
        self.version = version
        self.stepped = stepped
        self.flexible = flexible_from is not None and version >= flexible_from
        self.lines: list[str] = []
        self.indent = "    "
        self.scope: dict[str, Any] = {}
        self.run: list[tuple[str, int, str]] = []
        self.names = 0

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def deeper(self) -> None:
        self.indent += "    "

    def shallower(self) -> None:
        self.indent = self.indent[:-4]

    def begin_steps(self) -> None:
        """Emit the counter of the elements that are left in the step."""
        if self.stepped:
            self.line(f"s = {STEP_ELEMENTS}")
            self.line("if not s:")
            self.line("    yield  # so that it is a generator")

    def end_element(self) -> None:
        """Emit the end of a step, after an element of an array."""
        if self.stepped:
            self.line("s -= 1")
            self.line("if not s:")
            self.line(f"    s = {STEP_ELEMENTS}")
            self.line("    yield")

    def name(self, prefix: str) -> str:
        """A local name that nothing else uses."""
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, prefix: str, value: Any) -> str:
        """A name for `value` in the scope of the function."""
        for name, known in self.scope.items():
            if known is value and name.startswith(prefix):
                return name
        name = self.name(prefix + "_")
        self.scope[name] = value
        return name

    def helper(self, function: Callable[..., Any]) -> str:
        self.scope[function.__name__] = function
        return function.__name__

    def codec(self, prefix: str, function: Callable[..., Any]) -> str:
        """A name for a bound method of a `struct.Struct`."""
        name = self.name(prefix)
        self.scope[name] = function
        return name

    def carries(self, spec: FieldSpec) -> bool:
        return self.version in parse_versions(spec.versions)

    def may_be_null(self, spec: FieldSpec) -> bool:
        return self.version in parse_versions(spec.nullable)

    def is_tagged(self, spec: FieldSpec) -> bool:
        return spec.tag >= 0 and self.flexible

    def compile(self, signature: str, file_name: str) -> Callable[..., Any]:
        text = f"def {signature}:\n" + "\n".join(self.lines) + "\n"
        exec(compile(text, file_name, "exec"), self.scope)
        function: Callable[..., Any] = self.scope[signature.partition("(")[0]]
        return function

    def smallest_size(self, wire_type: WireType[Any], compact: bool) -> int:
        """The fewest bytes that a value can take."""
        if wire_type.name in FIXED:
            return FIXED[wire_type.name][1]
        if wire_type.name == "struct":
            assert wire_type.struct is not None
            return sum(
                1 if spec.type.name == "struct" and self.may_be_null(spec) else self.smallest_size(spec.type, compact)
                for spec in wire_type.struct.FIELDS
                if self.carries(spec) and not self.is_tagged(spec)
            ) + (1 if self.flexible else 0)
        if compact:
            return 1
        return 2 if wire_type.name == "string" else 4


def holds_records(cls: type[Struct], version: int) -> bool:
    """True if this version of the message has a field of record batches."""
    for spec in cls.FIELDS:
        if version not in parse_versions(spec.versions):
            continue
        inner = spec.type.element or spec.type
        if inner.name == "records" or (inner.struct is not None and holds_records(inner.struct, version)):
            return True
    return False


def field_name(target: str) -> str:
    return target.rpartition(".")[2]
