"""Clocks that are set wrong and run at another rate. Knows hosts by name, no node."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.simulated import Universe
from runtime.simulated.chance import Stream

_MOST_PPM = 2000.0


@dataclass(slots=True)
class WrongClocks:
    """Of one universe."""

    universe: Universe
    chance: Stream
    _wrong_by_ms: dict[str, float] = field(default_factory=dict)

    def jump(self, name: str) -> None:
        """By ten milliseconds to an hour, to and fro: jumps add up."""
        host = self.universe.host(name)
        by_ms = self.chance.choice((-1, 1)) * 10 ** self.chance.uniform(1.0, 6.5)
        self._wrong_by_ms[name] = self._wrong_by_ms.get(name, 0.0) + by_ms
        host.wall_clock.jump(by_ms)
        host.monotonic.set_rate(self.chance.uniform(-_MOST_PPM, _MOST_PPM))

    def set_right(self) -> None:
        """The time of day; a crystal stays as it is. Brokers refuse what is dated an hour ahead of them
        (message.timestamp.after.max.ms): with a clock that is behind by more, a healed cluster would.
        """
        for name, by_ms in self._wrong_by_ms.items():
            self.universe.host(name).wall_clock.jump(-by_ms)
        self._wrong_by_ms.clear()
