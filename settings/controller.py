"""The settings of a controller. Those of all nodes are in `node.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.settings.errors import SettingsError
from barnabas.settings.loading import Source, load_node
from barnabas.settings.node import NodeSettings

_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, kw_only=True)
class ControllerSettings(NodeSettings):
    """Every key that a controller acts on."""

    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    unclean_leader_election_interval_ms: int = 300000
    controller_performance_always_log_threshold_ms: int = 2000
    controller_performance_sample_period_ms: int = 60000
    controller_quorum_auto_join_enable: bool = False
    delegation_token_max_lifetime_ms: int = 7 * _DAY_MS
    delegation_token_expiry_time_ms: int = _DAY_MS
    delegation_token_expiry_check_interval_ms: int = 3600 * 1000
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1

    def check(self) -> list[str]:
        """Check rules between keys. Returns warnings; raises `SettingsError` (without a place) for an error."""
        warnings = super().check()
        voters = [voter.id for voter in self.controller_quorum_voters]
        if voters and self.node_id not in voters:
            raise SettingsError(
                "the id of a controller must be in controller.quorum.voters",
                "node.id",
                str(self.node_id),
                ", ".join(str(voter) for voter in voters),
            )
        late = [listener.name for listener in self.listeners if listener.name not in self.early_start_listeners]
        if self.authorizer_class_name and late and len(voters) != 1:
            raise SettingsError(
                "must have the listeners of controllers: they form a quorum before the access control lists are loaded",
                "early.start.listeners",
                ",".join(self.early_start_listeners),
                ", ".join(listener.name for listener in self.listeners),
            )
        for listener in self.listeners:
            if listener.name not in self.controller_listener_names:
                raise SettingsError(
                    "a controller listens only on names in controller.listener.names",
                    "listeners",
                    str(listener),
                    ", ".join(self.controller_listener_names),
                )
        return warnings


def load_controller_settings(
    text: str, name: str, overrides: Mapping[str, str] | None = None, *, hostname: str = "localhost"
) -> tuple[ControllerSettings, list[str]]:
    """Settings and warnings from the text of a `.properties` file called `name`; see
    `load_broker_settings`.
    """
    return load_node(ControllerSettings, "controller", Source(text, name, overrides or {}, hostname))
