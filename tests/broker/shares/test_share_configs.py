"""The configs of a share group are those that hold now."""

from __future__ import annotations

import pytest

from tests.broker.apis.rig import Rig, on_cluster
from tests.broker.shares.share_rig import ALONE, GROUP_RESOURCE

pytestmark = pytest.mark.feature("CG-19")


@on_cluster(**ALONE)
async def test_a_changed_config_holds_at_once(rig: Rig) -> None:
    configs = rig.broker(1).share_configs
    assert configs("work").terms.lock_ms == 30_000
    assert configs("work") is configs("work"), "it is made once"
    await rig.configure(GROUP_RESOURCE, "work", share_record_lock_duration_ms="15000")
    await rig.until(lambda: configs("work").terms.lock_ms == 15_000)
    assert configs("other").terms.lock_ms == 30_000
