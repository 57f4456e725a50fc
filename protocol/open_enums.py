"""Core: enumerations to which Kafka may add: any other value is the member UNKNOWN."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Self


class OpenIntEnum(IntEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls["UNKNOWN"]


class OpenStrEnum(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls["UNKNOWN"]
