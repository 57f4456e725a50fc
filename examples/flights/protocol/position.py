"""A position report: `47.4502,8.5618,1250` under the plane's call sign as key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """Position of a plane: degrees north, degrees east, metres."""

    latitude: float
    longitude: float
    altitude: int

    def encode(self) -> bytes:
        return f"{self.latitude:.4f},{self.longitude:.4f},{self.altitude}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Position:
        """Raises ValueError for anything else."""
        latitude, longitude, altitude = data.decode().split(",")
        return cls(float(latitude), float(longitude), int(altitude))
