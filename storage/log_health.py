"""State of the disk under one log, with the callbacks that report its failures and shortages."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.shortage import is_shortage, lacks_room


class LogHealth:
    """A log with a `failure` refuses whatever needs the disk with KAFKA_STORAGE_ERROR."""

    __slots__ = ("_describe", "failure", "is_closed_for_room", "on_failure", "on_no_room")

    def __init__(self, describe: Callable[[], str]) -> None:
        """`describe` names the log in error messages."""
        self._describe = describe
        self.failure: OSError | None = None
        self.on_failure: Callable[[OSError], None] | None = None
        """Called once if the disk fails; a shortage (`storage.shortage`) is no failure."""
        self.on_no_room: Callable[[], None] | None = None
        """Called each time there is no room for an append."""
        self.is_closed_for_room = False
        """Refuses appends while its directory is full, so that the little room that is left goes to other writes."""

    def check(self) -> None:
        """Raises KafkaError if the disk has failed."""
        if self.failure is not None:
            raise self.error(self.failure)

    def check_room(self) -> None:
        """Raises KafkaError if the directory is full."""
        if self.is_closed_for_room:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._describe()}: its log directory is full")

    def failed(self, error: OSError, *, passes: bool | None = None) -> KafkaError:
        """The error to raise. Anything but a shortage puts the log out of service; `passes` says whether this is one.
        """
        passes = is_shortage(error) if passes is None else passes
        if passes and lacks_room(error) and self.on_no_room is not None:
            self.on_no_room()
        if not passes and self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)
        return self.error(error)

    def truncation_failed(self, error: OSError) -> KafkaError:
        """A truncation that cannot sync its directory, after it removed files, has stopped halfway."""
        return self.failed(error, passes=lacks_room(error))

    def error(self, error: Exception) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._describe()}: {error}")
