"""Share groups on simulated clusters, whose features do not have them yet."""

from __future__ import annotations

import pytest

from barnabas.broker.shares.node_part import ShareGroups


@pytest.fixture
def share_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share groups are enabled in every cluster."""
    monkeypatch.setattr(ShareGroups, "are_enabled", lambda _: True)
