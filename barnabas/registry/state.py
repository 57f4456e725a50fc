"""Core: the contents of a registry, made by the records of its topic in their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from barnabas.registry.records import Change, Content, Reference, SchemaValue, config_change, mode_change

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"
OVERRIDE = "READONLY_OVERRIDE"

Place = tuple[str, int]
"""A subject and one of its versions."""


class RegistryState:
    """Subjects with their versions, ids, compatibility levels and modes."""

    def __init__(self) -> None:
        self.max_id = 0
        self._subjects: dict[str, dict[int, SchemaValue]] = {}
        self._ids: dict[int, dict[Place, None]] = {}
        self._contents: dict[Content, int] = {}
        self._guids: dict[str, int] = {}
        self._referrers: dict[Place, dict[Place, None]] = {}
        self._configs: dict[str | None, Mapping[str, Any]] = {}
        self._modes: dict[str | None, str] = {}

    # ---- changes

    def clear(self) -> None:
        """Forget everything: the topic is read again."""
        self.max_id = 0
        self._subjects.clear()
        self._ids.clear()
        self._contents.clear()
        self._guids.clear()
        self._referrers.clear()
        self._configs.clear()
        self._modes.clear()

    def apply(self, change: Change) -> str:
        """Take over a record. Returns the reason why it is ignored; empty if it is not."""
        key, value = change.key, change.value
        match key.keytype:
            case "SCHEMA" if isinstance(value, SchemaValue):
                return self._put(value)
            case "SCHEMA" if value is None:
                self._remove(key.subject or "", key.version)
            case "CONFIG":
                self._set_config(key.subject, value if isinstance(value, Mapping) else None)
            case "MODE":
                self._set_mode(key.subject, value if isinstance(value, Mapping) else None)
            case "DELETE_SUBJECT" if isinstance(value, Mapping):
                self._delete_subject(key.subject or "", value.get("version"))
            case "CLEAR_SUBJECT" if value is not None:
                for subject in list(self._subjects) if key.subject is None else [key.subject]:
                    self._clear(subject)
            case "SCHEMA" | "DELETE_SUBJECT" | "CLEAR_SUBJECT" | "NOOP" | "CONTEXT":
                pass
            case other:
                return f"records of type {other} are not known here"
        return ""

    def _put(self, value: SchemaValue) -> str:
        holder = self.by_id(value.id)
        if holder is not None and (holder.schema, holder.schema_type) != (value.schema, value.schema_type):
            return f"id {value.id} is the id of another schema, that of {holder.subject} version {holder.version}"
        self._remove(value.subject, value.version)
        place = value.subject, value.version
        versions = self._subjects.setdefault(value.subject, {})
        in_order = not versions or value.version > next(reversed(versions))
        versions[value.version] = value
        if not in_order:
            self._subjects[value.subject] = dict(sorted(versions.items()))
        self._ids.setdefault(value.id, {})[place] = None
        self._contents.setdefault(value.content, value.id)
        self._guids[value.guid] = value.id
        for each in value.references:
            self._referrers.setdefault((each.subject, each.version), {})[place] = None
        self.max_id = max(self.max_id, value.id)
        return ""

    def _remove(self, subject: str, version: int) -> None:
        versions = self._subjects.get(subject, {})
        value = versions.pop(version, None)
        if value is None:
            return
        if not versions:
            del self._subjects[subject]
        place = subject, version
        places = self._ids[value.id]
        del places[place]
        if not places:
            del self._ids[value.id]
            self._guids.pop(value.guid, None)
            if self._contents.get(value.content) == value.id:
                del self._contents[value.content]
        for each in value.references:
            self._referrers.get((each.subject, each.version), {}).pop(place, None)

    def _delete_subject(self, subject: str, up_to: object) -> None:
        versions = self._subjects.get(subject, {})
        for version, value in versions.items():
            if isinstance(up_to, int) and version <= up_to:
                versions[version] = replace(value, deleted=True)

    def _clear(self, subject: str) -> None:
        for version in list(self._subjects.get(subject, {})):
            self._remove(subject, version)

    def _set_config(self, subject: str | None, fields: Mapping[str, Any] | None) -> None:
        if fields is None:
            self._configs.pop(subject, None)
        else:
            self._configs[subject] = {name: value for name, value in fields.items() if name != "subject"}

    def _set_mode(self, subject: str | None, fields: Mapping[str, Any] | None) -> None:
        mode = None if fields is None else fields.get("mode")
        if isinstance(mode, str):
            self._modes[subject] = mode
        else:
            self._modes.pop(subject, None)

    # ---- subjects and versions

    def subjects(self, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Names in order: those with a live version; with `deleted` all; with `deleted_only` those without any."""
        return sorted(
            name
            for name, versions in self._subjects.items()
            if (deleted and not deleted_only) or self._is_live(versions) is not deleted_only
        )

    @staticmethod
    def _is_live(versions: dict[int, SchemaValue]) -> bool:
        return any(not each.deleted for each in reversed(versions.values()))

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        versions = self._subjects.get(subject)
        return versions is not None and (deleted or self._is_live(versions))

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaValue]:
        """Versions in ascending order; with `deleted` also those that are marked so."""
        return [each for each in self._subjects.get(subject, {}).values() if deleted or not each.deleted]

    def get(self, subject: str, version: int, *, deleted: bool = False) -> SchemaValue | None:
        """A version, or the latest one if `version` is -1."""
        versions = self._subjects.get(subject, {})
        if version == -1:
            return next((each for each in reversed(versions.values()) if deleted or not each.deleted), None)
        found = versions.get(version)
        return found if found is not None and (deleted or not found.deleted) else None

    def next_version(self, subject: str) -> int:
        return max(self._subjects.get(subject, {0: None})) + 1

    # ---- ids

    def by_id(self, schema_id: int) -> SchemaValue | None:
        """The first version with this id, deleted or not."""
        places = self._ids.get(schema_id)
        if not places:
            return None
        subject, version = next(iter(places))
        return self._subjects[subject][version]

    def with_id(self, schema_id: int) -> Iterator[SchemaValue]:
        for subject, version in self._ids.get(schema_id, ()):
            yield self._subjects[subject][version]

    def id_of(self, content: Content) -> int | None:
        return self._contents.get(content)

    def id_of_guid(self, guid: str) -> int | None:
        return self._guids.get(guid)

    def find(self, subject: str, content: Content, *, deleted: bool = False) -> SchemaValue | None:
        """The newest version of a subject with this content."""
        schema_id = self._contents.get(content)
        if schema_id is None:
            return None
        found = [each for each in self.with_id(schema_id) if each.subject == subject and (deleted or not each.deleted)]
        return max(found, key=lambda each: each.version, default=None)

    def referrers(self, subject: str, version: int, *, deleted: bool = False) -> list[SchemaValue]:
        """Versions whose schemas refer to this one."""
        places = self._referrers.get((subject, version), ())
        found = [self._subjects[name][number] for name, number in places]
        return [each for each in found if deleted or not each.deleted]

    def resolve(self, references: Sequence[Reference], most: int) -> list[tuple[Reference, SchemaValue]]:
        """All that these references lead to, each before those that need it. Raises KeyError with the first reference
        that is missing; OverflowError if there are more than `most`."""
        found: dict[Reference, SchemaValue] = {}
        waiting = [(each, False) for each in reversed(references)]
        begun: set[Reference] = set()
        while waiting:
            reference, is_resolved = waiting.pop()
            value = self.get(reference.subject, reference.version, deleted=True)
            if value is None:
                raise KeyError(reference)
            if is_resolved:
                found[reference] = value
            elif reference not in begun:
                begun.add(reference)
                if len(begun) > most:
                    raise OverflowError
                waiting.append((reference, True))
                waiting += [(each, False) for each in reversed(value.references)]
        return list(found.items())

    # ---- settings

    def setting_removals(self) -> list[Change]:
        """Records that remove all configs and modes."""
        configs = [config_change(subject, None) for subject in self._configs]
        return configs + [mode_change(subject, None) for subject in self._modes]

    def config(self, subject: str | None) -> Mapping[str, Any] | None:
        return self._configs.get(subject)

    def level(self, subject: str) -> str:
        """The compatibility level in force for a subject."""
        for each in (subject, None):
            level = self._configs.get(each, {}).get("compatibilityLevel")
            if isinstance(level, str):
                return level
        return DEFAULT_LEVEL

    def normalizes(self, subject: str) -> bool:
        found = [self._configs.get(each, {}).get("normalize") for each in (subject, None)]
        return next((each for each in found if isinstance(each, bool)), False)

    def mode(self, subject: str | None) -> str | None:
        return self._modes.get(subject)

    def mode_in_force(self, subject: str | None) -> str:
        everywhere = self._modes.get(None, DEFAULT_MODE)
        return everywhere if everywhere == OVERRIDE else self._modes.get(subject, everywhere)
