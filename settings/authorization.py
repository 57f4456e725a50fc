"""The settings of access control: `authorizer.class.name` and the keys that its class reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from barnabas.settings.errors import SettingsError

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
KEYS_OF_AUTHORIZER = frozenset({SUPER_USERS, ALLOW_EVERYONE})
"""Keys that Kafka passes to the authorizer's class, unread."""


def authorization_fields(
    class_name: str | None,
    raw: Mapping[str, str],
    early_start: Sequence[str] | None,
    listener_names: Collection[str],
    controller_names: Collection[str],
) -> dict[str, Any]:
    """The fields of `NodeSettings`. Raises SettingsError."""
    class_name = (class_name or "").strip()
    if class_name not in ("", STANDARD_AUTHORIZER):
        raise SettingsError(
            "not an authorizer of this node", "authorizer.class.name", class_name, f"{STANDARD_AUTHORIZER}, or nothing"
        )
    return {
        "authorizer_class_name": class_name,
        "super_users": _super_users(raw.get(SUPER_USERS, "")),
        "allow_everyone_if_no_acl_found": _boolean(raw.get(ALLOW_EVERYONE, "false")),
        "early_start_listeners": _early_start(early_start, listener_names, controller_names),
    }


def _super_users(text: str) -> list[str]:
    """Principals, separated by semicolons: names of certificates contain commas."""
    principals = [each.strip() for each in text.split(";")]
    for principal in principals:
        if principal and ":" not in principal:
            raise SettingsError("not a principal", SUPER_USERS, principal, "Type:name, for example User:admin")
    return list(dict.fromkeys(filter(None, principals)))


def _boolean(text: str) -> bool:
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise SettingsError("not a boolean", ALLOW_EVERYONE, text, "true or false")
    return found


def _early_start(
    names: Sequence[str] | None, listener_names: Collection[str], controller_names: Collection[str]
) -> list[str]:
    """Names of listeners that open before the ACLs are loaded: by default those of controllers."""
    if names is None:
        return sorted(set(listener_names) & set(controller_names))
    early = [name.strip().upper() for name in names]
    for name in early:
        if name not in listener_names and name not in controller_names:
            raise SettingsError(
                f"{name} is neither in listeners nor in controller.listener.names",
                "early.start.listeners",
                ",".join(names),
                ", ".join(sorted({*listener_names, *controller_names})),
            )
    return early
