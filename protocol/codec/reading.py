"""Writes readers: from the bytes of a message to its object."""

from __future__ import annotations

import struct
from typing import Any

from barnabas.protocol.codec.helpers import (
    LONGEST_STRING_BYTES,
    MOST_ELEMENTS,
    cut_short,
    long_length,
    long_varint,
    null_not_allowed,
    read_tag,
    read_unknown_tags,
    string_too_long,
    tag_size_differs,
    too_many,
    wrong_marker,
)
from barnabas.protocol.codec.source import FIXED, Source, field_name, holds_records
from barnabas.protocol.structs import (
    Message,
    Reader,
    SteppedReader,
    Struct,
    WireType,
    default_lines,
)


class ReaderSource(Source):
    """Writes the reader."""

    counted = False
    """True if the elements of this message are limited. Responses are not: they come from nodes that we called, and may
    be about a whole cluster."""

    def count(self, how_many: str) -> None:
        """Emit the check before so many elements are read."""
        if self.counted:
            self.line(f"elements += {how_many}")
            self.line("if elements > most:")
            self.line(f"    {self.helper(too_many)}(most)")

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
        self.begin_steps()
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
                    self.string_length(wire_type, target)
                self.shallower()
        elif compact:
            self.line("if not 0 < n < 128:")
            self.line(f"    n, p = {self.helper(long_length)}(b, p, n)")
            self.deeper()
            self.string_length(wire_type, target)
            self.shallower()
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

    def string_length(self, wire_type: WireType[Any], target: str) -> None:
        """Refuse a string from outside that no older encoding could carry on."""
        if wire_type.name == "string" and self.counted:
            self.line(f"if n > {LONGEST_STRING_BYTES + 1}:")
            self.line(f"    {self.helper(string_too_long)}({field_name(target)!r}, n - 1)")

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
            self.end_element()
            self.shallower()

    def all_fixed(self, cls: type[Struct]) -> bool:
        """True if every element has the same size as long as it has no tagged fields."""
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
        self.end_element()
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
        self.end_element()
        self.shallower()
        self.shallower()


def compile_reader(cls: type[Message], version: int) -> Reader:
    """The reader of `version` of a message."""
    source = ReaderSource(version, cls.FLEXIBLE_FROM)
    source.message(cls)
    return source.compile(f"read(b, p, most={MOST_ELEMENTS})", f"<reader of {cls.__name__} {version}>")


def compile_stepped_reader(cls: type[Message], version: int) -> SteppedReader:
    """The stepped reader of `version` of a message."""
    source = ReaderSource(version, cls.FLEXIBLE_FROM, stepped=True)
    source.message(cls)
    return source.compile("read(b, p, most)", f"<stepped reader of {cls.__name__} {version}>")
