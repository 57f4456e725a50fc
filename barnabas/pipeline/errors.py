"""Core: errors of the pipeline. Each message is one line that says what is wrong and what to do."""

from __future__ import annotations

INSTALL_HINT = "run pip install '.[pipeline]' in a checkout of Barnabas, or pip install pyspark==4.2.0 pyarrow numpy"


class PipelineError(Exception):
    """One line for the person who runs the job."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


class BlockingError(PipelineError):
    """A call got no response."""


class NotSent(BlockingError):
    """The broker certainly did not receive the whole request."""


class UnsupportedVersion(NotSent):
    """The broker serves the API in no version that this client supports."""


class ConnectionFailed(BlockingError):
    """The connection ended, or a malformed response came: the request may have been processed."""


class TimedOut(BlockingError):
    """No response in time: the request may have been processed, or may still be."""


class WrongUse(PipelineError):
    """Invalid options or arguments; nothing was done."""


class LedgerError(PipelineError):
    """The ledger of a query and its checkpoint disagree."""


class Untrusted(PipelineError):
    """This attempt of a batch must not be committed; the batch may be written again in another epoch."""


class TransactionError(PipelineError):
    """The batch is not committed, and may be retried."""


class Fenced(TransactionError):
    """Another producer uses the transactional id now."""


class TookTooLong(TransactionError):
    """The coordinator aborted the transaction after transaction.timeout.ms."""


class OutcomeUnknown(TransactionError):
    """EndTxn got no response. The ledger shows the outcome once the next transaction has begun."""
