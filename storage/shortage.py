"""Core: which refusals of the operating system mean that something ran short, and may be there again later.

None of them says anything about the disk: what was written stays, and the same call may succeed the next time.
"""

from __future__ import annotations

import errno

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_SHORTAGES = OUT_OF_SPACE | OUT_OF_DESCRIPTORS | {errno.ENOMEM}


def is_shortage(error: OSError) -> bool:
    """No room, no descriptor or no memory. A failed sync is never one, whatever its number: the kernel reports it once
    and drops what it could not write.
    """
    return error.errno in _SHORTAGES


def lacks_descriptors(error: OSError) -> bool:
    """No file could be opened. A sync cannot fail with it."""
    return error.errno in OUT_OF_DESCRIPTORS


def shortage_behind(error: Exception) -> OSError | None:
    """The shortage that `error` is, or that it was raised from; None if it is anything else."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause if isinstance(cause, OSError) and is_shortage(cause) else None


def lacks_room(error: OSError) -> bool:
    return error.errno in OUT_OF_SPACE
