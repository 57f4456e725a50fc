"""Loads the class that `client.quota.callback.class` names."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from barnabas.runtime.quotas.callback import ClientQuotaCallback
from barnabas.settings.errors import SettingsError

KEY = "client.quota.callback.class"

METHODS = (
    "configure",
    "quota_metric_tags",
    "quota_limit",
    "update_quota",
    "remove_quota",
    "quota_reset_required",
)


def load_callback(configs: Mapping[str, str]) -> ClientQuotaCallback | None:
    """The callback of a node, configured; None if it has none. Raises SettingsError."""
    name = configs.get(KEY, "").strip()
    if not name:
        return None
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise SettingsError("must name a Python class as module:Class", KEY, name)
    try:
        callback: ClientQuotaCallback = getattr(import_module(module), attribute)()
    except Exception as error:  # the operator's own code
        raise SettingsError(f"cannot be loaded: {error}", KEY, name) from error
    missing = [method for method in METHODS if not callable(getattr(callback, method, None))]
    if missing:
        raise SettingsError(f"has no method {', '.join(missing)}", KEY, name)
    try:
        callback.configure(configs)
    except Exception as error:  # the operator's own code
        raise SettingsError(f"cannot be configured: {error!r}", KEY, name) from error
    return callback
