"""Errors with which nodes end by themselves or which they log: whether a failed disk explains them, and one-line
texts."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.process import CannotRun


def is_of_disk(error: BaseException) -> bool:
    """True if a failed disk explains the error and everything in its group."""
    return all(_leaf_is_of_disk(leaf) for leaf in _leaves(error))


def describe(error: BaseException) -> str:
    return "; ".join(f"{type(leaf).__name__}: {leaf}{place_of(leaf)}" for leaf in _leaves(error))


def place_of(error: BaseException | None) -> str:
    """The innermost frames of its traceback: ` (file:line in function < ...)`."""
    frames = []
    traceback = None if error is None else error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno} in {code.co_name}")
        traceback = traceback.tb_next
    return f" ({' < '.join(reversed(frames[-5:]))})" if frames else ""


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _leaf_is_of_disk(error: BaseException) -> bool:
    if isinstance(error, KafkaError):
        return error.code is ErrorCode.KAFKA_STORAGE_ERROR
    return isinstance(error, OSError | CannotRun)
