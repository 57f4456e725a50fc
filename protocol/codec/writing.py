"""Writes writers: from the object of a message to its bytes."""

from __future__ import annotations

import struct
from typing import Any

from barnabas.protocol.codec.helpers import put_tags, put_varint, unsupported_field, wrong_uuid
from barnabas.protocol.codec.source import FIXED, Source, field_name
from barnabas.protocol.structs import (
    FieldSpec,
    Message,
    SteppedWriter,
    Struct,
    WireType,
    Writer,
)


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
        self.begin_steps()
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
        self.end_element()
        self.shallower()


def compile_writer(cls: type[Message], version: int) -> Writer:
    """The writer of `version` of a message."""
    source = WriterSource(version, cls.FLEXIBLE_FROM)
    source.message(cls)
    return source.compile("write(m, c, p, cuts)", f"<writer of {cls.__name__} {version}>")


def compile_stepped_writer(cls: type[Message], version: int) -> SteppedWriter:
    """The stepped writer of `version` of a message."""
    source = WriterSource(version, cls.FLEXIBLE_FROM, stepped=True)
    source.message(cls)
    return source.compile("write(m, c, p, cuts)", f"<stepped writer of {cls.__name__} {version}>")
