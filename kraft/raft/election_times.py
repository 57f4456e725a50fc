"""Times that a replica waits before it stands for election, for the votes, and after it lost.

A random part keeps voters apart. Knows no roles and no clock: every result is a duration.
"""

from __future__ import annotations

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.voter_history import VoterHistory
from barnabas.runtime.world import Chance

ELECTION_BACKOFF_BASE_MS = 50
CANDIDACY_STAGGER_MS = 30
CANDIDACY_JITTER_MS = 10
"""Voters that learn of a leader's death together stand 30 ms apart, so that the first one usually wins
alone."""


class ElectionTimes:
    """One replica's; remembers only how many elections in a row it lost."""

    def __init__(self, config: RaftConfig, voters: VoterHistory, chance: Chance) -> None:
        self._config = config
        self._voters = voters
        self._chance = chance
        self._failed_elections = 0

    def leader_known(self) -> None:
        """There is a leader: the backoff starts over."""
        self._failed_elections = 0

    def stagger_ms(self, place: int) -> int:
        """Delay of a candidacy that waits for no timeout, as the `place`-th of the voters."""
        if len(self._voters.current.voters) <= 1:
            return 0
        return place * CANDIDACY_STAGGER_MS + self._chance.randrange(0, CANDIDACY_JITTER_MS)

    def timeout_ms(self) -> int:
        """Election timeout: for the votes to arrive, or for a leader to become known."""
        timeout = self._config.election_timeout_ms
        return timeout + self._chance.randrange(0, max(timeout, 1))

    def backoff_ms(self) -> int:
        """Backoff after a lost election: random, its bound doubles with each one lost in a row."""
        self._failed_elections += 1
        bound = min(ELECTION_BACKOFF_BASE_MS << min(self._failed_elections, 16), self._config.election_backoff_max_ms)
        return self._chance.randrange(ELECTION_BACKOFF_BASE_MS // 2, max(bound, ELECTION_BACKOFF_BASE_MS) + 1)
