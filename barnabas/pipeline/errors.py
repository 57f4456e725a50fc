"""What goes wrong between Spark and a cluster, each told in one line that says what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """One line for whoever runs the job: what is wrong, and what to do about it."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


class BlockingError(PipelineError):
    """A call got no answer."""


class NotSent(BlockingError):
    """The request certainly did not reach the peer."""


class UnsupportedVersion(NotSent):
    """The peer does not serve the API in a version that we speak."""


class ConnectionFailed(BlockingError):
    """The connection ended, or told nonsense, before the answer came: the request may have been processed."""


class TimedOut(BlockingError):
    """No answer in time: the request may have been processed, or may yet be."""


class WrongUse(PipelineError):
    """What was asked makes no sense: nothing was done."""


class LedgerError(PipelineError):
    """The ledger of a query and its checkpoint do not tell the same story."""


class Untrusted(PipelineError):
    """This attempt of a batch must not be committed; another may be."""


class TransactionError(PipelineError):
    """The batch is not committed; it may be tried again."""


class Fenced(TransactionError):
    """Somebody else has the transactional id now."""


class TookTooLong(TransactionError):
    """The coordinator aborted it after transaction.timeout.ms."""


class OutcomeUnknown(TransactionError):
    """Nobody answered EndTxn: the ledger will tell, once the next transaction has begun."""
