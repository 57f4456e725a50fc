"""Core: decides requests by the state: an answer, and the records to write.

Decisions that parse or compare schemas are generators of short steps. They read the state, and never change it: only
the records that were written and read again do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from barnabas.registry import errors
from barnabas.registry.compatibility import Earlier, Messages, compare
from barnabas.registry.records import (
    AVRO,
    Change,
    Content,
    Reference,
    SchemaValue,
    clear_subject,
    config_change,
    delete_subject,
    mode_change,
)
from barnabas.registry.requests import LATEST, MOST_REFERENCES, SchemaRequest, check_subject
from barnabas.registry.schemas.formats import Formats
from barnabas.registry.schemas.parsed import ParsedSchema, Resolved, SchemaError, Source
from barnabas.registry.state import DEFAULT_LEVEL, DEFAULT_MODE, RegistryState

MOST_VERSIONS = 10_000
"""Versions of a subject, deleted ones included. Confluent's registry has no limit."""
IMPORT = "IMPORT"
READ_ONLY = ("READONLY", "READONLY_OVERRIDE")


class Outcome(NamedTuple):
    """An answer, and the records that have to be written before it is given."""

    answer: Any
    changes: Sequence[Change] = ()


Steps = Generator[None, None, Outcome]


@dataclass(frozen=True, slots=True)
class Registering:
    """Options of a registration."""

    normalize: bool = False
    force: bool = False
    """Without comparing it with earlier versions."""


class Decisions:
    """Decides on the state of one registry."""

    def __init__(self, state: RegistryState, formats: Formats) -> None:
        self.state = state
        self._formats = formats

    # ---- schemas

    def parse(self, request: SchemaRequest) -> ParsedSchema:
        """Raises `RegistryError` if it is no schema, or refers to a version that does not exist."""
        try:
            return self._formats.parse(self._source(request.schema_type, request.schema, request.references))
        except SchemaError as error:
            raise errors.invalid_schema(str(error)) from None

    def parsed(self, value: SchemaValue) -> ParsedSchema:
        """The schema of a version. Raises as `parse`."""
        return self.parse(SchemaRequest(value.schema, value.schema_type, value.references))

    def _source(self, schema_type: str, schema: str, references: tuple[Reference, ...]) -> Source:
        if not references:
            return Source(schema_type, schema)
        try:
            found = self.state.resolve(references, MOST_REFERENCES)
        except KeyError as error:
            missing: Reference = error.args[0]
            raise errors.invalid_schema(
                f"Invalid schema of type {schema_type}, details: No schema reference found for subject "
                f'"{missing.subject}" and version {missing.version}'
            ) from None
        except OverflowError:
            raise errors.invalid_schema(
                f"Invalid schema of type {schema_type}, details: more than {MOST_REFERENCES} references"
            ) from None
        return Source(schema_type, schema, references, [Resolved(each, value.schema) for each, value in found])

    def _content(self, request: SchemaRequest, *, normalize: bool) -> tuple[ParsedSchema, SchemaValue]:
        """The schema, and the value to keep it in."""
        parsed = self.parse(request)
        text = parsed.normalized() if normalize else parsed.canonical
        references = tuple(sorted(set(request.references))) if normalize else request.references
        kept = SchemaValue("", 0, -1, text, request.schema_type, references, request.metadata, request.rule_set)
        return parsed, kept

    def find(self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool) -> SchemaValue | None:
        """The version of a subject with this schema."""
        _, kept = self._content(request, normalize=normalize or self.state.normalizes(subject))
        return self.state.find(subject, kept.content, deleted=deleted)

    def look_up(self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool) -> SchemaValue:
        """Raises `RegistryError` if there is none."""
        found = self.find(subject, request, normalize=normalize, deleted=deleted)
        if found is None:
            raise self._missing(subject, None, deleted=deleted)
        return found

    def version(self, subject: str, version: int, *, deleted: bool = False) -> SchemaValue:
        """Raises `RegistryError` if there is none."""
        found = self.state.get(subject, version, deleted=deleted)
        if found is None:
            raise self._missing(subject, version, deleted=deleted)
        return found

    def _missing(self, subject: str, version: int | None, *, deleted: bool) -> errors.RegistryError:
        if not self.state.has_subject(subject, deleted=deleted):
            return errors.subject_not_found(subject)
        return errors.schema_not_found() if version is None else errors.version_not_found(version)

    # ---- registration

    def register(self, subject: str, request: SchemaRequest, options: Registering) -> Steps:
        """Register a schema as the next version; the answer is its `SchemaValue`."""
        check_subject(subject)
        mode = self._check_register_mode(subject, request)
        normalize = options.normalize or self.state.normalizes(subject)
        parsed, kept = self._content(request, normalize=normalize)
        yield
        known_id = self.state.id_of(kept.content)
        existing = self.state.find(subject, kept.content)
        if existing is not None and request.version == 0 and request.id in (-1, existing.id):
            return Outcome(existing)
        if mode != IMPORT and not options.force:
            messages = yield from self.compare(subject, parsed, self.state.versions(subject))
            if messages:
                raise errors.incompatible(subject, f"[{', '.join(messages)}]")
        value = self._next(subject, kept, request, known_id, mode)
        return Outcome(value, [*self._replaced(value), Change(value.key, value)])

    def _check_register_mode(self, subject: str, request: SchemaRequest) -> str:
        mode = self.state.mode_in_force(subject)
        self._check_writable(subject)
        if request.id >= 0 and mode != IMPORT:
            raise errors.not_permitted(f"Subject {subject} in context . is not in import mode")
        if request.id < 0 and mode != DEFAULT_MODE:
            raise errors.not_permitted(f"Subject {subject} in context . is not in read-write mode")
        return mode

    def _check_writable(self, subject: str) -> None:
        if self.state.mode_in_force(subject) in READ_ONLY:
            raise errors.not_permitted(f"Subject {subject} in context . is in read-only mode")

    def _next(
        self, subject: str, kept: SchemaValue, request: SchemaRequest, known_id: int | None, mode: str
    ) -> SchemaValue:
        version = self.state.next_version(subject)
        if request.version > 0 and request.version != version:
            if mode != IMPORT:
                raise errors.invalid_schema("Version is not one more than previous version")
            version = request.version
        if len(self.state.versions(subject, deleted=True)) >= MOST_VERSIONS:
            raise errors.not_permitted(f"Subject {subject} has {MOST_VERSIONS} versions, the most that are kept here")
        schema_id = request.id
        if schema_id < 0:
            schema_id = self.state.max_id + 1 if known_id is None else known_id
        holder = self.state.by_id(schema_id)
        if holder is not None and _without_data(holder.content) != _without_data(kept.content):
            raise errors.id_does_not_match(schema_id)
        return replace(kept, subject=subject, version=version, id=schema_id)

    def _replaced(self, value: SchemaValue) -> list[Change]:
        """Deleted versions with the same id give way to the new one."""
        return [
            Change(each.key)
            for each in self.state.versions(value.subject, deleted=True)
            if each.deleted
            and each.id == value.id
            and each.version < value.version
            and not self.state.referrers(each.subject, each.version, deleted=True)
        ]

    # ---- compatibility

    def compare(self, subject: str, schema: ParsedSchema, versions: Sequence[SchemaValue]) -> Messages:
        """Messages, none if the schema may follow these versions."""
        earlier = [Earlier(each.version, _parsing(self.parsed, each)) for each in versions]
        return compare(self.state.level(subject), schema, earlier)

    def check(self, subject: str, request: SchemaRequest, version: int | None) -> Generator[None, None, list[str]]:
        """Compare a schema with one version, or with all that its level looks at. Returns messages."""
        if version is None:
            versions = self.state.versions(subject)
        else:
            found = self.state.get(subject, version)
            if found is None and version != LATEST:
                raise errors.version_not_found(version)
            versions = [] if found is None else [found]
        parsed = self.parse(request)
        yield
        messages = yield from self.compare(subject, parsed, versions)
        return messages

    # ---- deletes

    def delete_version(self, subject: str, version: int, *, permanent: bool) -> Outcome:
        """Mark a version as deleted, or remove one that is marked; the answer is its number."""
        found = self.state.get(subject, version, deleted=permanent)
        if found is None and not permanent and self.state.get(subject, version, deleted=True) is not None:
            raise errors.version_soft_deleted(subject, version)
        if found is None:
            raise self._missing(subject, version, deleted=True)
        self._check_writable(subject)
        if self.state.referrers(subject, found.version, deleted=permanent):
            raise errors.reference_exists(subject, found.version)
        if not permanent:
            return Outcome(found.version, [Change(found.key, replace(found, deleted=True))])
        if not found.deleted:
            raise errors.version_not_soft_deleted(subject, found.version)
        changes = [Change(found.key)]
        if len(self.state.versions(subject, deleted=True)) == 1:
            changes += self._forget_settings(subject)
        return Outcome(found.version, changes)

    def delete_subject(self, subject: str, *, permanent: bool) -> Outcome:
        """Mark all versions as deleted, or remove them if all are; the answer is their numbers."""
        if not self.state.has_subject(subject, deleted=True):
            raise errors.subject_not_found(subject)
        if not permanent and not self.state.has_subject(subject):
            raise errors.subject_soft_deleted(subject)
        self._check_writable(subject)
        versions = self.state.versions(subject, deleted=permanent)
        for each in versions:
            referrers = self.state.referrers(subject, each.version, deleted=permanent)
            if any(other.subject != subject for other in referrers):
                raise errors.reference_exists(subject, each.version)
            if permanent and not each.deleted:
                raise errors.subject_not_soft_deleted(subject)
        numbers = [each.version for each in versions]
        if not permanent:
            return Outcome(numbers, [delete_subject(subject, numbers[-1])])
        changes = [Change(each.key) for each in reversed(versions)]
        return Outcome(numbers, [*changes, *self._forget_settings(subject)])

    def _forget_settings(self, subject: str) -> list[Change]:
        changes = [mode_change(subject, None)] if self.state.mode(subject) is not None else []
        return changes + ([config_change(subject, None)] if self.state.config(subject) is not None else [])

    # ---- settings

    def config(self, subject: str | None, *, default_to_global: bool = False) -> Mapping[str, Any]:
        """Raises `RegistryError` if the subject has none of its own."""
        found = self.state.config(subject)
        if subject is None or default_to_global:
            return {"compatibilityLevel": DEFAULT_LEVEL, **(self.state.config(None) or {}), **(found or {})}
        if found is None:
            raise errors.no_subject_compatibility(subject)
        return found

    def set_config(self, subject: str | None, config: Mapping[str, Any]) -> Outcome:
        """Set these fields, and leave others as they are."""
        if subject is not None:
            check_subject(subject)
        self._check_writable(subject or "")
        return Outcome(config, [config_change(subject, {**(self.state.config(subject) or {}), **config})])

    def delete_config(self, subject: str | None) -> Outcome:
        """The answer is the config that was in force."""
        found = self.state.config(subject)
        if found is None and subject is not None:
            raise errors.subject_not_found(subject)
        self._check_writable(subject or "")
        return Outcome(found or {"compatibilityLevel": DEFAULT_LEVEL}, [config_change(subject, None)])

    def mode(self, subject: str | None, *, default_to_global: bool = False) -> str:
        """Raises `RegistryError` if the subject has none of its own."""
        if subject is None or default_to_global:
            return self.state.mode_in_force(subject)
        found = self.state.mode(subject)
        if found is None:
            raise errors.no_subject_mode(subject)
        return found

    def set_mode(self, subject: str | None, mode: str, *, force: bool) -> Outcome:
        """To import, there must be no live versions; deleted ones are removed."""
        if subject is not None:
            check_subject(subject)
        changes: list[Change] = []
        if mode == IMPORT and self.state.mode_in_force(subject) != IMPORT and not force:
            subjects = self.state.subjects(deleted=True) if subject is None else [subject]
            if any(self.state.has_subject(each) for each in subjects):
                raise errors.not_permitted("Cannot import since found existing subjects")
            for each in subjects:
                changes += self._removal(each)
            changes.append(clear_subject(subject))
        return Outcome(mode, [*changes, mode_change(subject, mode)])

    def _removal(self, subject: str) -> list[Change]:
        versions = self.state.versions(subject, deleted=True)
        for each in versions:
            if self.state.referrers(subject, each.version, deleted=True):
                raise errors.reference_exists(subject, each.version)
        return [Change(each.key) for each in versions]

    def delete_mode(self, subject: str | None) -> Outcome:
        """The answer is the mode that was in force."""
        found = self.state.mode(subject)
        if found is None:
            raise errors.subject_not_found(subject or "")
        return Outcome(found, [mode_change(subject, None)])


def _parsing(parse: Callable[[SchemaValue], ParsedSchema], value: SchemaValue) -> Callable[[], ParsedSchema]:
    return lambda: parse(value)


def _without_data(content: Content) -> tuple[str, str]:
    return content.schema_type or AVRO, content.schema
