"""The log of a node in files that are rotated."""

from __future__ import annotations

import os
import sys
from logging.handlers import RotatingFileHandler

LOG_FILE_BYTES = 10 << 20
LOG_FILES_KEPT = 4
"""Older files of a log that are kept: the log of a node never takes more than 50 MiB."""


class RotatingLog(RotatingFileHandler):
    """A rotated log that also gets everything that is written to standard output and standard error."""

    def __init__(self, path: str) -> None:
        super().__init__(path, maxBytes=LOG_FILE_BYTES, backupCount=LOG_FILES_KEPT, encoding="utf-8")
        self._take_standard_streams()

    def doRollover(self) -> None:
        super().doRollover()
        self._take_standard_streams()

    def _take_standard_streams(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        if self.stream is not None:
            os.dup2(self.stream.fileno(), 1)
            os.dup2(self.stream.fileno(), 2)
