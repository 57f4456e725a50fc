"""Core: errors of the operating system that mean a shortage of a resource, which may pass.

None of them is a fault of the disk: what was written remains, and the same call may succeed later.
"""

from __future__ import annotations

import errno

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_SHORTAGES = OUT_OF_SPACE | OUT_OF_DESCRIPTORS | {errno.ENOMEM}


def is_shortage(error: OSError) -> bool:
    """True for a lack of room, file descriptors or memory. A failed sync is never a shortage, whatever its errno: the
    kernel reports it once and drops what it could not write.
    """
    return error.errno in _SHORTAGES


def lacks_descriptors(error: OSError) -> bool:
    """No file could be opened. A sync cannot fail with it."""
    return error.errno in OUT_OF_DESCRIPTORS


def shortage_behind(error: Exception) -> OSError | None:
    """The shortage that `error` is or was raised from; None for any other error."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause if isinstance(cause, OSError) and is_shortage(cause) else None


def lacks_room(error: OSError) -> bool:
    return error.errno in OUT_OF_SPACE
