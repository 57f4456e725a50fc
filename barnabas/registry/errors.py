"""Core: refusals of the registry, with the codes and messages of Confluent's."""

from __future__ import annotations

VALID_LEVELS = (
    "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
    "forward_transitive, and full_transitive"
)
VALID_MODES = "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT"


class RegistryError(Exception):
    """A refused request: an HTTP status, and the `error_code` and `message` of the body."""

    def __init__(self, error_code: int, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message
        self.status = status or (error_code if error_code < 1000 else error_code // 100)


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | str | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    text = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(40406, text)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def no_subject_compatibility(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: str) -> RegistryError:
    text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {details}'
    return RegistryError(409, text)


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(42201, reason)


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> RegistryError:
    return RegistryError(42203, VALID_LEVELS)


def invalid_mode() -> RegistryError:
    return RegistryError(42204, VALID_MODES)


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(42205, reason)


def reference_exists(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(42206, f"One or more references exist to the schema {key}.")


def id_does_not_match(schema_id: int) -> RegistryError:
    return RegistryError(42207, f"Overwrite new schema with id {schema_id} is not permitted.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large() -> RegistryError:
    return RegistryError(42209, "Register operation failed because schema is too large")


def store_failed(reason: str) -> RegistryError:
    return RegistryError(50001, reason)


def store_timed_out(reason: str) -> RegistryError:
    return RegistryError(50002, reason)


def forwarding_failed(reason: str) -> RegistryError:
    return RegistryError(50003, reason)


def unknown_leader() -> RegistryError:
    return RegistryError(50004, "Request failed since leader is unknown")


def unreadable(reason: str) -> RegistryError:
    """A body that is no JSON object of the expected fields."""
    return RegistryError(422, reason)
