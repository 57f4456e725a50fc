"""The rules of a local cluster's authorizer that are no access control lists: settings in the files of its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from barnabas.settings.authorization import authorization_fields
from barnabas.settings.errors import SettingsError
from barnabas.settings.properties import parse_properties


@dataclass(frozen=True, slots=True)
class NodeRules:
    """Settings of the authorizer."""

    super_users: tuple[str, ...] = ()
    allow_everyone_if_no_acl_found: bool = False
    are_known: bool = False


def rules_of(data: Path) -> NodeRules:
    """The rules of the local cluster in `data`; unknown if its first broker has no readable file."""
    file = data / "conf" / "broker-1.properties"
    try:
        raw = {key: value for key, (value, _line) in parse_properties(file.read_text(), str(file)).items()}
        fields = authorization_fields(raw.get("authorizer.class.name"), raw, None, (), ())
    except (OSError, SettingsError):
        return NodeRules()
    return NodeRules(tuple(fields["super_users"]), fields["allow_everyone_if_no_acl_found"], True)
