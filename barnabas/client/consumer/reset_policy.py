"""Core: the position of a reader without an offset (auto.offset.reset). Knows no partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from barnabas.client.offset_lookup import EARLIEST, LATEST

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<part>\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_PREFIX = "by_duration:"


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """A value of auto.offset.reset."""

    name: str
    """earliest, latest, none or by_duration."""
    duration_ms: int = 0
    """Distance back from now, for by_duration (KIP-1106)."""

    @classmethod
    def parse(cls, text: str) -> ResetPolicy:
        """From `earliest`, `latest`, `none` or `by_duration:PnDTnHnMn.nS`. ValueError for anything else."""
        lowered = text.strip().lower()
        if lowered in {"earliest", "latest", "none"}:
            return cls(lowered)
        if lowered.startswith(_PREFIX):
            return cls("by_duration", _duration_ms(lowered.removeprefix(_PREFIX)))
        raise ValueError("must be earliest, latest, none or by_duration:<ISO 8601 duration>")

    def timestamp(self, now_ms: int) -> int | None:
        """Timestamp for ListOffsets, at the wall clock's `now_ms`; None for `none`."""
        match self.name:
            case "earliest":
                return EARLIEST
            case "latest":
                return LATEST
            case "by_duration":
                return max(0, now_ms - self.duration_ms)
            case _:
                return None

    def __str__(self) -> str:
        return f"{_PREFIX}{self.duration_ms} ms" if self.name == "by_duration" else self.name


FROM_EARLIEST = ResetPolicy("earliest")
FROM_LATEST = ResetPolicy("latest")
NO_RESET = ResetPolicy("none")


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    parts = found.groupdict() if found is not None else {}
    if not any(parts.values()) or text.upper().endswith("T"):
        raise ValueError("must be by_duration:PnDTnHnMn.nS, such as by_duration:PT1H")
    days, hours, minutes, seconds = (int(parts[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    millis = int(((parts["part"] or "") + "000")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + millis
