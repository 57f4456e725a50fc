"""The wait before the last reads covers open transactions and sessions of dead members."""

from __future__ import annotations

import pytest

from barnabas.testing.cluster import QUICK_GROUPS
from clients.client import ClientSettings
from running.experiment import NODE_SETTINGS
from running.settling_time import ABORTS_EVERY_MS, HEARTBEAT_MS, SESSION_MS, quiet_seconds, session_seconds

CLIENT = ClientSettings("", "")

pytestmark = pytest.mark.feature("FI-01")


def test_transactions_left_open_are_aborted_before_the_last_reads() -> None:
    """Under Kafka's defaults read_committed readers ended before these transactions did, and the records behind them
    were reported as lost."""
    assert quiet_seconds(3.0, {}, CLIENT) == 12.0
    assert quiet_seconds(60.0, {}, CLIENT) == 60.0
    assert quiet_seconds(3.0, {ABORTS_EVERY_MS: "30000"}, CLIENT) == 32.0


def test_members_that_are_gone_are_waited_for_by_the_protocol() -> None:
    assert session_seconds("classic", {}, CLIENT) == 6.0
    assert session_seconds("consumer", {}, CLIENT) == 55.0
    assert session_seconds("consumer", {SESSION_MS: "50000", HEARTBEAT_MS: "1000"}, CLIENT) == 52.0


def test_our_own_nodes_keep_nobody_waiting() -> None:
    assert quiet_seconds(3.0, NODE_SETTINGS, CLIENT) == 3.0
    assert session_seconds("consumer", NODE_SETTINGS | QUICK_GROUPS, CLIENT) == 6.0
