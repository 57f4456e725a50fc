"""The classes that describe messages on the wire.

A message is a class whose annotated fields carry a `field(...)`: wire type, versions, default, and if the field may be
null, is tagged, or may be dropped silently when a version lacks it. The classes are the only source of the protocol.
Nothing here knows the meaning of a message, or how it is encoded: `protocol.schema` does that.

Source: the message format of Kafka; tagged fields and compact types are KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, dataclass_transform, overload

Reader = Callable[..., tuple[Any, int]]
"""(buffer, position, most elements that a request may have) → (message, position after it)."""
Writer = Callable[[Any, bytearray, int, list[tuple[int, Any]]], int]
"""(message, buffer, position, cuts) → position after it; a cut is a position with the records that follow it."""
SteppedReader = Callable[[Any, int, int], Generator[None, None, tuple[Any, int]]]
"""Like `Reader`, in steps."""
SteppedWriter = Callable[[Any, bytearray, int, list[tuple[int, Any]]], Generator[None, None, int]]
"""Like `Writer`, in steps."""
Buffer = bytes | bytearray | memoryview

T = TypeVar("T")
S = TypeVar("S", bound="Struct")

MISSING: Any = type("MISSING", (), {"__repr__": lambda self: "MISSING", "__slots__": ()})()
"""Stands for "no default given" and, in a constructor, for "make a new default"."""


SECRETS = frozenset({"auth_bytes", "hmac", "salt", "salted_password", "server_key", "stored_key"})
"""Fields that `repr` does not show: logs, dumps and tracebacks must not contain them."""


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
"""Record batches. Decoded as a view into the frame; any sized piece of a frame is encoded as it is."""


def struct(kind: type[S]) -> WireType[S]:
    """The wire type of one struct."""
    return WireType("struct", struct=kind)


def array(element: WireType[T] | type[T]) -> WireType[list[T]]:
    """The wire type of an array of structs (given as their class) or primitives."""
    if isinstance(element, WireType):
        return WireType("array", element=element)
    # Primitives are not structs, but they are passed as wire types; T cannot express that.
    return WireType("array", element=WireType("struct", struct=element))  # type: ignore[arg-type]


class FieldSpec:
    """The arguments of `field(...)`. Version texts stay texts until a codec is compiled."""

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
def field(  # noqa: PLR0913 - each is one property of a field
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
            namespace["READERS"] = {}
            namespace["WRITERS"] = {}
            namespace["STEPPED_READERS"] = {}
            namespace["STEPPED_WRITERS"] = {}
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)


class Struct(metaclass=StructType):
    """A run of fields. Two are equal if they are of one class and all their fields are."""

    __slots__ = ("unknown_tagged_fields",)
    __hash__ = None  # type: ignore[assignment]  # how Python has it that something is not hashable

    FIELDS: ClassVar[tuple[FieldSpec, ...]] = ()

    if TYPE_CHECKING:

        @property
        def unknown_tagged_fields(self) -> dict[int, bytes] | None:
            """Tagged fields that are not known here, by tag, or None. Encoding writes them again."""

        @unknown_tagged_fields.setter
        def unknown_tagged_fields(self, fields: dict[int, bytes] | None) -> None: ...
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
        shown = [
            f"{spec.name}={'[hidden]' if spec.name in SECRETS else repr(getattr(self, spec.name))}"
            for spec in self.FIELDS
        ]
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
    READERS: ClassVar[dict[int, Reader]] = {}
    WRITERS: ClassVar[dict[int, SizedWriter[Writer]]] = {}
    STEPPED_READERS: ClassVar[dict[int, SteppedReader]] = {}
    STEPPED_WRITERS: ClassVar[dict[int, SizedWriter[SteppedWriter]]] = {}


W = TypeVar("W")


class SizedWriter(Generic[W]):
    """A compiled writer, and how large a buffer the next message will probably need."""

    __slots__ = ("size_bytes", "write")

    def __init__(self, write: W) -> None:
        self.write = write
        self.size_bytes = 256


def compile_constructor(cls: type[Struct]) -> None:
    """Give `cls` its `__init__`: one parameter per field, in order, each with its default."""
    scope: dict[str, Any] = {"MISSING": MISSING, "new": object.__new__}
    parameters, lines = [], []
    for spec in cls.FIELDS:
        if spec.factory is None:
            default = f"d{len(scope)}"
            scope[default] = spec.default
            parameters.append(f"{spec.name}={default}")
            lines.append(f"    self.{spec.name} = {spec.name}")
        else:
            parameters.append(f"{spec.name}=MISSING")
            lines.append(f"    if {spec.name} is MISSING:")
            lines.extend("        " + line for line in default_lines(spec, spec.name, scope))
            lines.append(f"    self.{spec.name} = {spec.name}")
    lines.append("    self.unknown_tagged_fields = None")
    source = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(lines)
    exec(source, scope)
    cls.__init__ = scope["__init__"]  # type: ignore[method-assign]  # `dataclass_transform` declares it


def default_lines(spec: FieldSpec, target: str, scope: dict[str, Any]) -> list[str]:
    """Source lines that put a new default of the field into `target`; `scope` is the one they will run in.

    They set the fields of a default struct one by one, which costs a third of calling its constructor.
    """
    if spec.factory is None:
        if spec.default is None or type(spec.default) in {int, bool, str}:
            return [f"{target} = {spec.default!r}"]
        name = f"d{len(scope)}"
        scope[name] = spec.default
        return [f"{target} = {name}"]
    if spec.factory is list:
        return [f"{target} = []"]
    kind = spec.type.struct
    assert kind is not None
    whole, name = f"s{len(scope)}", f"class{len(scope)}"
    scope["new"] = object.__new__
    scope[name] = kind
    lines = [f"{target} = {whole} = new({name})", f"{whole}.unknown_tagged_fields = None"]
    for inner in kind.FIELDS:
        lines.extend(default_lines(inner, f"{whole}.{inner.name}", scope))
    return lines
