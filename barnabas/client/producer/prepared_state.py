"""Core: the token of a prepared transaction, for the records of an external coordinator (KIP-939)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from barnabas.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_TEXT = re.compile(r"(\d{1,19}):(\d{1,5})", re.ASCII)
_MOST_ID, _MOST_EPOCH = 2**63 - 1, 2**15 - 1


@dataclass(frozen=True, slots=True)
class PreparedTxnState:
    """Identifies one transaction of one transactional id. Equal states are the same transaction.

    `str()` is Kafka's text, `producer_id:epoch`, or "" if there is no transaction; `parse` reads it.
    """

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @classmethod
    def parse(cls, text: str) -> Self:
        """ValueError if `text` is neither empty nor `producer_id:epoch` with numbers of 63 and 15 bits."""
        if not text:
            return cls()
        match = _TEXT.fullmatch(text)
        state = cls() if match is None else cls(int(match[1]), int(match[2]))
        if match is None or state.producer_id > _MOST_ID or state.epoch > _MOST_EPOCH:
            raise ValueError(f"a prepared state must be empty or 'producer_id:epoch', such as '4000:7'; got {text!r}")
        return state

    @property
    def has_transaction(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}" if self.has_transaction else ""
