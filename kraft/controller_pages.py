"""The pages of a controller over HTTP: its metrics and its state."""

from __future__ import annotations

from barnabas.kraft.metrics import controller_metrics
from barnabas.kraft.node import ControllerNode
from barnabas.kraft.state_page import ControllerState
from barnabas.runtime.metrics import metrics_page
from barnabas.runtime.observatory import Page


def controller_pages(node: ControllerNode) -> dict[str, Page]:
    metrics = controller_metrics(
        node.world, node.service, node.dispatcher, node.server, node.security, node.settings.all_log_dirs
    )
    return {"/metrics": metrics_page(metrics), "/state": controller_state(node).page}


def controller_state(node: ControllerNode) -> ControllerState:
    return ControllerState(node.settings.node_id, node.service, node.decisions, node.reason_not_ready)
