"""Compiles the reader and the writer of one (message, version) from the fields of its classes.

The result is a single straight function per message: structs and arrays are unrolled into it, and
neighbouring fields of fixed size are packed and unpacked by one `struct` call. The length byte of a compact
string or array, and the count byte of the tagged fields, ride at the end of such a run; the rare cases (a
length above 126, tagged fields that are there) leave the fast line. Knows no message by name;
`protocol.schema` is the door.

In generated code `b` is the buffer, `p` the position, `e` the end; in writers `c` is the growing bytearray.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from protocol.errors import MalformedMessage, UnsupportedFieldError
from protocol.schema import (
    FieldSpec,
    Message,
    Reader,
    Struct,
    WireType,
    Writer,
    default_lines,
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


MOST_ELEMENTS = 1 << 18
"""Elements of arrays, and tagged fields, of all levels together that a message may have unless it is a response. An
element of two bytes on the wire takes a hundred in memory; nobody has so many partitions to speak of at once."""


def cut_short() -> NoReturn:
    raise MalformedMessage("a length reaches beyond the end of the message")


def too_many() -> NoReturn:
    raise MalformedMessage(f"more than {MOST_ELEMENTS} elements in one message")


def null_not_allowed(name: str) -> NoReturn:
    raise MalformedMessage(f"{name} is null or has a negative length")


def wrong_marker(name: str) -> NoReturn:
    raise MalformedMessage(f"{name} has a wrong null marker")


def unsupported_field(name: str, version: int) -> NoReturn:
    raise UnsupportedFieldError(f"{name} cannot be carried by version {version}")


def wrong_uuid(name: str) -> NoReturn:
    raise TypeError(f"{name} is not 16 bytes long")


def long_varint(b: Any, p: int, n: int) -> tuple[int, int]:
    """The unsigned varint whose first byte, just before `p`, was `n` with its top bit set."""
    n &= 0x7F
    shift = 7
    while True:
        byte = b[p]
        p += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 or n > 0xFFFFFFFF:
                raise MalformedMessage("a varint is longer than its value needs, or too large")
            return n, p
        shift += 7
        if shift > 28:
            raise MalformedMessage("a varint does not end")


def long_length(b: Any, p: int, n: int) -> tuple[int, int]:
    """A compact length (one more than the size) whose first byte was not in 1..127."""
    if n == 0:
        raise MalformedMessage("a field that may not be null is null")
    return long_varint(b, p, n)


def read_varint(b: Any, p: int) -> tuple[int, int]:
    """An unsigned varint at `p`."""
    n = b[p]
    return (n, p + 1) if n < 0x80 else long_varint(b, p + 1, n)


def read_unknown_tags(b: Any, p: int, e: int, count: int) -> tuple[dict[int, bytes], int]:
    """The `count` tagged fields of a struct that knows none."""
    unknown: dict[int, bytes] = {}
    last = -1
    for _ in range(count):
        last, p, q = read_tag(b, p, e, last)
        unknown[last] = bytes(b[p:q])
        p = q
    return unknown, p


def read_tag(b: Any, p: int, e: int, last: int) -> tuple[int, int, int]:
    """(tag, start, end) of the tagged field at `p`; tags must rise from `last`."""
    tag, p = read_varint(b, p)
    size, p = read_varint(b, p)
    if tag <= last:
        raise MalformedMessage("tagged fields are not in rising order")
    if size > e - p:
        cut_short()
    return tag, p, p + size


def tag_size_differs() -> NoReturn:
    raise MalformedMessage("a tagged field has another size than it says")


def put_varint(c: bytearray, p: int, n: int) -> int:
    """Write the unsigned varint `n` at `p` and give the position after it."""
    while n > 127:
        c[p] = (n & 0x7F) | 0x80
        n >>= 7
        p += 1
    c[p] = n
    return p + 1


def put_tags(c: bytearray, p: int, known: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> int:
    """Write count and tagged fields in rising order."""
    if unknown:
        known = sorted([*known, *unknown.items()])
    p = put_varint(c, p, len(known))
    for tag, data in known:
        p = put_varint(c, put_varint(c, p, tag), len(data))
        c[p : p + len(data)] = data
        p += len(data)
    return p


class Source:
    """Lines of a function in the making, the names it uses, and the run of fixed-size fields still to go."""

    def __init__(self, version: int, flexible_from: int | None) -> None:
        self.version = version
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
                1
                if spec.type.name == "struct" and self.may_be_null(spec)
                else self.smallest_size(spec.type, compact)
                for spec in wire_type.struct.FIELDS
                if self.carries(spec) and not self.is_tagged(spec)
            ) + (1 if self.flexible else 0)
        if compact:
            return 1
        return 2 if wire_type.name == "string" else 4


def holds_records(cls: type[Struct], version: int) -> bool:
    """Whether this version of the message has a field of record batches."""
    for spec in cls.FIELDS:
        if version not in parse_versions(spec.versions):
            continue
        inner = spec.type.element or spec.type
        if inner.name == "records" or (inner.struct is not None and holds_records(inner.struct, version)):
            return True
    return False


# ---------------------------------------------------------------- reading


class ReaderSource(Source):
    """Writes the reader."""

    counted = False
    """Whether the elements of this message are limited. Responses come from whom we asked, and may be about a whole
    cluster."""

    def count(self, how_many: str) -> None:
        """So many elements are about to be read."""
        if self.counted:
            self.line(f"elements += {how_many}")
            self.line(f"if elements > {MOST_ELEMENTS}:")
            self.line(f"    {self.helper(too_many)}()")

    def take(self, code: str, size: int, target: str) -> None:
        """Put a fixed-size value on the run."""
        self.run.append((code, size, target))

    def flush(self) -> None:
        """Read the run with one call."""
        if not self.run:
            return
        formats = "".join(code for code, _, _ in self.run)
        size = sum(size for _, size, _ in self.run)
        targets = [target for _, _, target in self.run]
        if formats == "B":
            self.line(f"{targets[0]} = b[p]")
        else:
            unpack = self.codec("unpack", struct.Struct(">" + formats).unpack_from)
            self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {unpack}(b, p)")
        self.line(f"p += {size}")
        self.run = []

    def message(self, cls: type[Struct]) -> None:
        if holds_records(cls, self.version):
            self.line("if type(b) is not memoryview:")
            self.line("    b = memoryview(b)")
        self.line("e = len(b)")
        self.counted = not cls.__name__.endswith("Response")
        if self.counted:
            self.line("elements = 0")
        target = self.name("o")
        self.struct(cls, target)
        self.flush()
        self.line(f"return {target}, p")

    def create(self, cls: type[Struct], target: str) -> None:
        """A new object with all that the wire will not set."""
        self.scope["new"] = object.__new__
        self.line(f"{target} = new({self.constant('class', cls)})")
        self.line(f"{target}.unknown_tagged_fields = None")
        for spec in cls.FIELDS:
            if not self.carries(spec) or self.is_tagged(spec):
                for line in default_lines(spec, f"{target}.{spec.name}", self.scope):
                    self.line(line)

    def struct(self, cls: type[Struct], target: str) -> None:
        """Create `target` and read its fields."""
        self.create(cls, target)
        for spec in cls.FIELDS:
            if self.carries(spec) and not self.is_tagged(spec):
                self.value(
                    spec.type,
                    f"{target}.{spec.name}",
                    nullable=self.may_be_null(spec),
                    compact=self.flexible and not spec.classic,
                )
        if self.flexible:
            self.take("B", 1, "t")
            self.flush()
            self.tags(cls, target)

    def tags(self, cls: type[Struct], target: str) -> None:
        """The slow line: tagged fields are there."""
        self.line("if t:")
        self.deeper()
        known = [spec for spec in cls.FIELDS if self.carries(spec) and self.is_tagged(spec)]
        if not known:
            self.tags_count()
            helper = self.helper(read_unknown_tags)
            self.line(f"{target}.unknown_tagged_fields, p = {helper}(b, p, e, t)")
            self.shallower()
            return
        # One tagged field of fixed size gets its own line: followers send a high watermark per partition.
        word = "if"
        for spec in known:
            if spec.type.name in FIXED:
                code, size = FIXED[spec.type.name]
                unpack = self.codec("unpack", struct.Struct(">" + code).unpack_from)
                self.line(f"{word} t == 1 and b[p] == {spec.tag} and b[p + 1] == {size}:")
                self.line(f"    ({target}.{spec.name},) = {unpack}(b, p + 2)")
                self.line(f"    p += {size + 2}")
                word = "elif"
        if word == "elif":
            self.line("else:")
            self.deeper()
        last, end = self.name("last"), self.name("end")
        self.tags_count()
        self.line(f"{last} = -1")
        self.line("for _ in range(t):")
        self.deeper()
        self.line(f"{last}, p, {end} = {self.helper(read_tag)}(b, p, e, {last})")
        word = "if"
        for spec in known:
            self.line(f"{word} {last} == {spec.tag}:")
            self.deeper()
            where = f"{target}.{spec.name}"
            if spec.type.name == "struct" and self.may_be_null(spec):
                self.nullable_struct(spec.type, where, absent=0)
            else:
                self.value(spec.type, where, nullable=self.may_be_null(spec), compact=True)
            self.flush()
            self.shallower()
            word = "elif"
        self.line("else:")
        self.line(f"    if {target}.unknown_tagged_fields is None:")
        self.line(f"        {target}.unknown_tagged_fields = {{}}")
        self.line(f"    {target}.unknown_tagged_fields[{last}] = bytes(b[p:{end}])")
        self.line(f"    p = {end}")
        self.line(f"if p != {end}:")
        self.line(f"    {self.helper(tag_size_differs)}()")
        self.shallower()
        self.shallower()
        if any(spec.type.name in FIXED for spec in known):
            self.shallower()

    def tags_count(self) -> None:
        """The rest of the number of tagged fields, whose first byte is in `t`."""
        self.line("if t > 127:")
        self.line(f"    t, p = {self.helper(long_varint)}(b, p, t)")
        self.count("t")

    def value(self, wire_type: WireType[Any], target: str, *, nullable: bool, compact: bool) -> None:
        """Read one value into `target`."""
        kind = wire_type.name
        if kind in FIXED:
            self.take(*FIXED[kind], target)
        elif kind == "struct":
            assert wire_type.struct is not None
            if nullable:
                self.nullable_struct(wire_type, target, absent=-1)
            else:
                inner = self.name("o")
                self.struct(wire_type.struct, inner)
                self.line(f"{target} = {inner}")
        else:
            if compact:
                self.take("B", 1, "n")
            else:
                self.take("h" if kind == "string" else "i", 2 if kind == "string" else 4, "n")
            self.flush()
            self.sized(wire_type, target, nullable=nullable, compact=compact)

    def nullable_struct(self, wire_type: WireType[Any], target: str, *, absent: int) -> None:
        """A struct after a marker: 1 and the struct, or `absent` alone."""
        assert wire_type.struct is not None
        self.take("b", 1, "n")
        self.flush()
        self.line("if n == 1:")
        self.deeper()
        inner = self.name("o")
        self.struct(wire_type.struct, inner)
        self.flush()
        self.line(f"{target} = {inner}")
        self.shallower()
        self.line(f"elif n == {absent}:")
        self.line(f"    {target} = None")
        self.line("else:")
        self.line(f"    {self.helper(wrong_marker)}({field_name(target)!r})")

    def sized(self, wire_type: WireType[Any], target: str, *, nullable: bool, compact: bool) -> None:
        """A string, bytes, records or an array, whose length word has just been read into `n`."""
        if nullable:
            self.line("if n:" if compact else "if n >= 0:")
            self.deeper()
            if compact:
                self.line("if n > 127:")
                self.deeper()
                if wire_type.name == "records":
                    self.records_length()
                else:
                    self.line(f"n, p = {self.helper(long_varint)}(b, p, n)")
                self.shallower()
        elif compact:
            self.line("if not 0 < n < 128:")
            self.line(f"    n, p = {self.helper(long_length)}(b, p, n)")
        else:
            self.line("if n < 0:")
            self.line(f"    {self.helper(null_not_allowed)}({field_name(target)!r})")
        if wire_type.name == "array":
            self.array(wire_type, target, compact=compact)
        else:
            self.line("q = p + n - 1" if compact else "q = p + n")
            self.line("if q > e:")
            self.line(f"    {self.helper(cut_short)}()")
            piece = {"string": 'str(b[p:q], "utf-8")', "bytes": "bytes(b[p:q])", "records": "b[p:q]"}
            self.line(f"{target} = {piece[wire_type.name]}")
            self.line("p = q")
        if nullable:
            self.shallower()
            if compact:
                self.line("else:")
                self.line(f"    {target} = None")
            else:
                self.line("elif n == -1:")
                self.line(f"    {target} = None")
                self.line("else:")
                self.line(f"    {self.helper(null_not_allowed)}({field_name(target)!r})")

    def records_length(self) -> None:
        """Lengths of two and three bytes (up to 2 MiB) in line: that is what records mostly have."""
        self.line("k = b[p]")
        self.line("if 0 < k < 128:")
        self.line("    n = n & 127 | k << 7")
        self.line("    p += 1")
        self.line("elif k and 0 < b[p + 1] < 128:")
        self.line("    n = n & 127 | (k & 127) << 7 | b[p + 1] << 14")
        self.line("    p += 2")
        self.line("else:")
        self.line(f"    n, p = {self.helper(long_varint)}(b, p, n)")

    def array(self, wire_type: WireType[Any], target: str, *, compact: bool) -> None:
        element = wire_type.element
        assert element is not None
        if compact:
            self.line("n -= 1")
        smallest = max(1, self.smallest_size(element, compact))
        self.line(f"if n * {smallest} > e - p:" if smallest > 1 else "if n > e - p:")
        self.line(f"    {self.helper(cut_short)}()")
        self.count("n")
        if element.name == "uuid":
            self.line(f"{target} = [bytes(b[q : q + 16]) for q in range(p, p + 16 * n, 16)]")
            self.line("p += 16 * n")
        elif element.name in FIXED:
            code, size = FIXED[element.name]
            self.scope["unpack_from"] = struct.unpack_from
            self.line(f'{target} = list(unpack_from(f">{{n}}{code}", b, p))')
            self.line(f"p += {size} * n" if size > 1 else "p += n")
        elif element.struct is not None and self.all_fixed(element.struct):
            self.fixed_structs(element.struct, target)
        else:
            items = self.name("a")
            self.line(f"{target} = {items} = []")
            self.line("for _ in range(n):")
            self.deeper()
            item = self.name("o")
            if element.struct is not None:
                self.struct(element.struct, item)
            else:
                self.value(element, item, nullable=False, compact=compact)
            self.flush()
            self.line(f"{items}.append({item})")
            self.shallower()

    def all_fixed(self, cls: type[Struct]) -> bool:
        """Whether every element has the same size as long as it has no tagged fields."""
        carried = [spec for spec in cls.FIELDS if self.carries(spec) and not self.is_tagged(spec)]
        return bool(carried or self.flexible) and all(spec.type.name in FIXED for spec in carried)

    def fixed_structs(self, cls: type[Struct], target: str) -> None:
        """An array of structs of one size: unpack them in a row, and start over if one has tagged fields."""
        carried = [spec for spec in cls.FIELDS if self.carries(spec) and not self.is_tagged(spec)]
        formats = "".join(FIXED[spec.type.name][0] for spec in carried)
        size = sum(FIXED[spec.type.name][1] for spec in carried)
        items, item = self.name("a"), self.name("o")
        targets = [f"{item}.{spec.name}" for spec in carried]
        if self.flexible:
            formats, size, targets = formats + "B", size + 1, [*targets, "t"]
        iterate = self.codec("iterate", struct.Struct(">" + formats).iter_unpack)
        self.line(f"{target} = {items} = []")
        self.line(f"q = p + {size} * n")
        self.line(f"for values in {iterate}(b[p:q]):")
        self.deeper()
        self.create(cls, item)
        self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = values")
        if self.flexible:
            self.line("if t:")
            self.line("    break")
        self.line(f"{items}.append({item})")
        self.shallower()
        if not self.flexible:
            self.line("p = q")
            return
        self.line("else:")
        self.line("    p = q")
        self.line("if p != q:")
        self.deeper()
        self.line(f"{items}.clear()")
        self.line("for _ in range(n):")
        self.deeper()
        self.struct(cls, item)
        self.line(f"{items}.append({item})")
        self.shallower()
        self.shallower()


def field_name(target: str) -> str:
    return target.rpartition(".")[2]


def compile_reader(cls: type[Message], version: int) -> Reader:
    """The reader of `version` of a message."""
    source = ReaderSource(version, cls.FLEXIBLE_FROM)
    source.message(cls)
    return source.compile("read(b, p)", f"<reader of {cls.__name__} {version}>")


# ---------------------------------------------------------------- writing


class WriterSource(Source):
    """Writes the writer."""

    def put(self, code: str, size: int, value: str) -> None:
        """Put a fixed-size value on the run."""
        self.run.append((code, size, value))

    def flush(self) -> None:
        """Write the run with one call."""
        if not self.run:
            return
        formats = "".join(code for code, _, _ in self.run)
        size = sum(size for _, size, _ in self.run)
        values = [value for _, _, value in self.run]
        if formats == "B":
            self.line(f"c[p] = {values[0]}")
        else:
            pack = self.codec("pack", struct.Struct(">" + formats).pack_into)
            self.line(f"{pack}(c, p, {', '.join(values)})")
        self.line(f"p += {size}")
        self.run = []

    def message(self, cls: type[Struct]) -> None:
        self.struct(cls, "m")
        self.flush()
        self.line("return p")

    def struct(self, cls: type[Struct], owner: str) -> None:
        for spec in cls.FIELDS:
            where = f"{owner}.{spec.name}"
            if not self.carries(spec):
                if not spec.ignorable:
                    self.refuse(spec, where)
            elif not self.is_tagged(spec):
                self.value(
                    spec.type,
                    where,
                    nullable=self.may_be_null(spec),
                    compact=self.flexible and not spec.classic,
                )
        if self.flexible:
            self.tags(cls, owner)

    def refuse(self, spec: FieldSpec, where: str) -> None:
        """A value that this version cannot carry is our own mistake."""
        self.line(f"if {self.differs(spec, where)}:")
        self.line(f"    {self.helper(unsupported_field)}({spec.name!r}, {self.version})")

    def differs(self, spec: FieldSpec, where: str) -> str:
        """An expression: is the value not the default?"""
        if spec.factory is list:
            return f"({where} or {where} is None)" if spec.nullable else where
        if spec.factory is not None:
            assert spec.type.struct is not None
            parts = [self.differs(inner, f"{where}.{inner.name}") for inner in spec.type.struct.FIELDS]
            parts.append(f"{where}.unknown_tagged_fields")
            if spec.nullable:
                parts.insert(0, f"{where} is None")
            return f"({' or '.join(parts)})"
        if spec.default is None:
            return f"{where} is not None"
        if spec.default is False:
            return where
        value = spec.default
        text = repr(value) if type(value) in {int, bool, str} else self.constant("d", value)
        return f"{where} != {text}"

    def tags(self, cls: type[Struct], owner: str) -> None:
        known = [spec for spec in cls.FIELDS if self.carries(spec) and self.is_tagged(spec)]
        known.sort(key=lambda spec: spec.tag)
        tests = [self.differs(spec, f"{owner}.{spec.name}") for spec in known]
        self.line(f"if {' or '.join([*tests, f'{owner}.unknown_tagged_fields'])}:")
        self.deeper()
        run = list(self.run)
        word = "if"
        for spec, test in zip(known, tests, strict=True):
            if spec.type.name in FIXED and spec.type.name != "uuid":
                others = [other for other in tests if other is not test]
                self.line(f"{word} not ({' or '.join([*others, f'{owner}.unknown_tagged_fields'])}):")
                self.deeper()
                code, size = FIXED[spec.type.name]
                head = [("B", 1, "1"), ("B", 1, str(spec.tag)), ("B", 1, str(size))]
                self.run = [*run, *head, (code, size, f"{owner}.{spec.name}")]
                self.flush()
                self.shallower()
                word = "elif"
        if word == "elif":
            self.line("else:")
            self.deeper()
        self.run = list(run)
        self.flush()
        tagged, start = self.name("tagged"), self.name("start")
        self.line(f"{tagged} = []")
        for spec, test in zip(known, tests, strict=True):
            self.line(f"if {test}:")
            self.deeper()
            # The value is written where the tags will stand, then taken away: its size has to go before it.
            self.line(f"{start} = p")
            nullable = self.may_be_null(spec)
            if spec.type.name == "struct" and nullable:
                self.nullable_struct(spec.type, f"{owner}.{spec.name}", absent=0)
            else:
                self.value(spec.type, f"{owner}.{spec.name}", nullable=nullable, compact=True)
            self.flush()
            self.line(f"{tagged}.append(({spec.tag}, bytes(c[{start}:p])))")
            self.line(f"p = {start}")
            self.shallower()
        self.line(f"p = {self.helper(put_tags)}(c, p, {tagged}, {owner}.unknown_tagged_fields)")
        if word == "elif":
            self.shallower()
        self.shallower()
        self.line("else:")
        self.deeper()
        self.run = [*run, ("B", 1, "0")]
        self.flush()
        self.shallower()

    def value(self, wire_type: WireType[Any], where: str, *, nullable: bool, compact: bool) -> None:
        """Write the value of the expression `where`."""
        kind = wire_type.name
        if kind in FIXED:
            if kind == "uuid":
                self.line(f"if len({where}) != 16:")
                self.line(f"    {self.helper(wrong_uuid)}({field_name(where)!r})")
            self.put(*FIXED[kind], where)
        elif kind == "struct":
            assert wire_type.struct is not None
            if nullable:
                self.nullable_struct(wire_type, where, absent=-1)
            else:
                inner = self.name("o")
                self.line(f"{inner} = {where}")
                self.struct(wire_type.struct, inner)
        else:
            self.sized(wire_type, where, nullable=nullable, compact=compact)

    def nullable_struct(self, wire_type: WireType[Any], where: str, *, absent: int) -> None:
        assert wire_type.struct is not None
        self.flush()
        inner = self.name("o")
        self.line(f"{inner} = {where}")
        self.line(f"if {inner} is None:")
        self.deeper()
        self.put("b", 1, str(absent))
        self.flush()
        self.shallower()
        self.line("else:")
        self.deeper()
        self.put("b", 1, "1")
        self.struct(wire_type.struct, inner)
        self.flush()
        self.shallower()

    def sized(self, wire_type: WireType[Any], where: str, *, nullable: bool, compact: bool) -> None:
        kind = wire_type.name
        value = self.name("v")
        self.line(f"{value} = {where}")
        if nullable:
            self.line(f"if {value} is None:")
            self.line(f"    {value} = {'()' if kind == 'array' else 'b' + chr(34) * 2}")
            self.line("    n = 0" if compact else "    n = -1")
            self.line("else:")
            self.deeper()
        if kind == "string":
            self.line(f"{value} = {value}.encode()")
        self.line(f"n = len({value}) + 1" if compact else f"n = len({value})")
        if nullable:
            self.shallower()
        if compact:
            self.compact_length(kind)
        else:
            self.put("h" if kind == "string" else "i", 2 if kind == "string" else 4, "n")
            self.flush()
        if kind == "array":
            self.array(wire_type, value, compact=compact)
        elif kind == "records":
            self.line(f"if len({value}):")
            self.line(f"    cuts.append((p, {value}))")
        else:
            self.line(f"q = p + len({value})")
            self.line(f"c[p:q] = {value}")
            self.line("p = q")

    def compact_length(self, kind: str) -> None:
        """The length `n` at the end of the run; on the slow line by a call.

        Records mostly have lengths of two or three bytes (up to 2 MiB), so for them these are in line too.
        """
        run = list(self.run)
        low, middle = "n & 127 | 128", "n >> 7 & 127 | 128"
        lines = [("if n < 128:", ["n"])]
        if kind == "records":
            lines.append(("elif n < 16384:", [low, "n >> 7"]))
            lines.append(("elif n < 2097152:", [low, middle, "n >> 14"]))
        for test, length_bytes in lines:
            self.line(test)
            self.deeper()
            self.run = [*run, *[("B", 1, value) for value in length_bytes]]
            self.flush()
            self.shallower()
        self.line("else:")
        self.deeper()
        self.run = run
        self.flush()
        self.line(f"p = {self.helper(put_varint)}(c, p, n)")
        self.shallower()

    def array(self, wire_type: WireType[Any], value: str, *, compact: bool) -> None:
        element = wire_type.element
        assert element is not None
        if element.name in FIXED and element.name != "uuid":
            code, size = FIXED[element.name]
            self.scope["pack_into"] = struct.pack_into
            self.line(f'pack_into(f">{{len({value})}}{code}", c, p, *{value})')
            self.line(f"p += {size} * len({value})")
            return
        item = self.name("o")
        self.line(f"for {item} in {value}:")
        self.deeper()
        if element.struct is not None:
            before = len(self.lines)
            self.struct(element.struct, item)
            self.flush()
            if len(self.lines) == before:
                self.line("pass")
        else:
            self.value(element, item, nullable=False, compact=compact)
            self.flush()
        self.shallower()


def compile_writer(cls: type[Message], version: int) -> Writer:
    """The writer of `version` of a message."""
    source = WriterSource(version, cls.FLEXIBLE_FROM)
    source.message(cls)
    return source.compile("write(m, c, p, cuts)", f"<writer of {cls.__name__} {version}>")
