"""How a message says what it looks like on the wire, and the doors to encode and decode it.

A message is a class whose annotated fields carry a `field(...)`: wire type, versions, default, and whether it
may be null, is tagged, or may be dropped in silence when a version lacks it. The classes are the only source of
the protocol; the reader and the writer of one (message, version) are compiled when they are first needed
(`protocol.codec`).
Nothing here knows what any message means.

Source: the message format of Kafka; tagged fields and compact types are KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, dataclass_transform, overload

T = TypeVar("T")
S = TypeVar("S", bound="Struct")

MISSING: Any = type("MISSING", (), {"__repr__": lambda self: "MISSING", "__slots__": ()})()
"""Stands for "no default given" and, in a constructor, for "make the default anew"."""


class VersionRange(NamedTuple):
    """An inclusive range of versions; empty when `lowest` is above `highest`."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.lowest > self.highest:
            return "none"
        return f"{self.lowest}-{self.highest}" if self.lowest < self.highest else str(self.lowest)


NO_VERSIONS = VersionRange(0, -1)
UNBOUNDED_VERSION = 32767


def parse_versions(text: str) -> VersionRange:
    """`"3"`, `"1-4"`, `"2+"` or `"none"` (also empty) as a range."""
    if text in {"", "none"}:
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), UNBOUNDED_VERSION)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


class WireType(Generic[T]):
    """A type of the wire: a primitive (by name), a struct, or an array of either."""

    __slots__ = ("element", "name", "struct")

    def __init__(
        self, name: str, *, struct: type[Struct] | None = None, element: WireType[Any] | None = None
    ) -> None:
        self.name = name
        self.struct = struct
        self.element = element

    def __repr__(self) -> str:
        if self.element is not None:
            return f"array({self.element!r})"
        return self.name if self.struct is None else self.struct.__name__


BOOL: WireType[bool] = WireType("bool")
INT8: WireType[int] = WireType("int8")
INT16: WireType[int] = WireType("int16")
INT32: WireType[int] = WireType("int32")
INT64: WireType[int] = WireType("int64")
UINT16: WireType[int] = WireType("uint16")
UINT32: WireType[int] = WireType("uint32")
FLOAT64: WireType[float] = WireType("float64")
STRING: WireType[str] = WireType("string")
UUID: WireType[bytes] = WireType("uuid")
BYTES: WireType[bytes] = WireType("bytes")
RECORDS: WireType[Any] = WireType("records")
"""Record batches. Decoded as a view into the frame; any sized piece of a frame is encoded by passing it on."""


def struct(kind: type[S]) -> WireType[S]:
    """The wire type of one struct."""
    return WireType("struct", struct=kind)


def array(element: WireType[T] | type[T]) -> WireType[list[T]]:
    """The wire type of an array of structs (given as their class) or primitives."""
    inner: WireType[Any] = element if isinstance(element, WireType) else WireType("struct", struct=element)  # type: ignore[arg-type]
    return WireType("array", element=inner)


class FieldSpec:
    """What `field(...)` says. Version texts stay texts until a codec is compiled."""

    __slots__ = (
        "classic",
        "default",
        "factory",
        "ignorable",
        "name",
        "nullable",
        "tag",
        "type",
        "versions",
    )

    def __init__(self, wire_type: WireType[Any], versions: str, default: Any, factory: Any) -> None:
        self.name = ""
        self.type = wire_type
        self.versions = versions
        self.default = default
        self.factory = factory
        self.nullable = ""
        self.tag = -1
        self.ignorable = False
        self.classic = False

    def make_default(self) -> Any:
        """The value of a field that was not given."""
        return self.default if self.factory is None else self.factory()

    def __repr__(self) -> str:
        return f"field({self.type!r}, {self.versions!r}) {self.name}"


@overload
def field(
    wire_type: WireType[T],
    versions: str,
    *,
    default: T,
    nullable: str = "",
    tag: int = -1,
    ignorable: bool = False,
    classic: bool = False,
) -> T: ...
@overload
def field(
    wire_type: WireType[T],
    versions: str,
    *,
    default: None,
    nullable: str = "",
    tag: int = -1,
    ignorable: bool = False,
    classic: bool = False,
) -> T | None: ...
@overload
def field(
    wire_type: WireType[T],
    versions: str,
    *,
    factory: Callable[[], Any],
    nullable: str = "",
    tag: int = -1,
    ignorable: bool = False,
    classic: bool = False,
) -> T: ...
def field(  # noqa: PLR0913 - each says one thing about a field
    wire_type: WireType[Any],
    versions: str,
    *,
    default: Any = MISSING,
    factory: Any = None,
    nullable: str = "",
    tag: int = -1,
    ignorable: bool = False,
    classic: bool = False,
) -> Any:
    """One field of a struct.

    versions: those that carry the field; nullable: those in which it may be null; tag: its number if it
    travels as a tagged field; ignorable: a version without the field drops a value instead of refusing it;
    classic: keeps the old encoding even in flexible versions.
    """
    spec = FieldSpec(wire_type, versions, default, factory)
    spec.nullable = nullable
    spec.tag = tag
    spec.ignorable = ignorable
    spec.classic = classic
    return spec


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructType(type):
    """Turns the annotated fields of a class body into slots and `FIELDS`."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructType:
        fields = []
        for key, value in namespace.items():
            if type(value) is FieldSpec:
                value.name = key
                fields.append(value)
        for spec in fields:
            del namespace[spec.name]
        if bases:
            namespace["__slots__"] = tuple([spec.name for spec in fields])
            namespace["FIELDS"] = tuple(fields)
        if options:
            namespace["VERSIONS"] = parse_versions(options["versions"])
            flexible = parse_versions(options.get("flexible", "none"))
            namespace["FLEXIBLE_FROM"] = None if flexible == NO_VERSIONS else flexible.lowest
            namespace["API_KEY"] = options.get("api_key", -1)
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)


class Struct(metaclass=StructType):
    """A run of fields. Two are equal if they are of one class and all their fields are."""

    __slots__ = ("unknown_tagged_fields",)
    __hash__ = None  # type: ignore[assignment]

    FIELDS: ClassVar[tuple[FieldSpec, ...]] = ()

    if TYPE_CHECKING:
        unknown_tagged_fields: ClassVar[dict[int, bytes] | None]
        """Tagged fields from the wire that are not known here, by tag, or None. Encoding writes them again."""
    else:

        def __init__(self, *values: Any, **named: Any) -> None:
            compile_constructor(type(self))
            self.__init__(*values, **named)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, spec.name) == getattr(other, spec.name) for spec in self.FIELDS) and (
            self.unknown_tagged_fields == other.unknown_tagged_fields
        )

    def __repr__(self) -> str:
        shown = [f"{spec.name}={getattr(self, spec.name)!r}" for spec in self.FIELDS]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A struct that stands alone: a request, a response, a header, a record key or value, a file."""

    __slots__ = ()

    API_KEY: ClassVar[int] = -1
    """API key of a request or response; type of a metadata record or a coordinator record; else -1."""
    VERSIONS: ClassVar[VersionRange] = NO_VERSIONS
    """The versions this class can encode and decode; what a node serves is in `protocol.api_keys`."""
    FLEXIBLE_FROM: ClassVar[int | None] = None
    """The first version with compact types and tagged fields, or None."""


M = TypeVar("M", bound=Message)


def compile_constructor(cls: type[Struct]) -> None:
    """Give `cls` its `__init__`: one parameter per field, in order, each with its default."""
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = [], []
    for i, spec in enumerate(cls.FIELDS):
        if spec.factory is None:
            scope[f"d{i}"] = spec.default
            parameters.append(f"{spec.name}=d{i}")
            lines.append(f"    self.{spec.name} = {spec.name}")
        else:
            scope[f"d{i}"] = spec.factory
            parameters.append(f"{spec.name}=MISSING")
            lines.append(f"    self.{spec.name} = d{i}() if {spec.name} is MISSING else {spec.name}")
    lines.append("    self.unknown_tagged_fields = None")
    source = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(lines)
    exec(source, scope)
    cls.__init__ = scope["__init__"]  # type: ignore[method-assign]
