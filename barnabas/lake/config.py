"""The configuration of `barnabas lake`: a TOML file, or what the command line says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from barnabas.cluster.errors import WrongArgument
from barnabas.lake.catalogs import BY_DAY, NOT_AT_ALL, CatalogAddress
from barnabas.lake.topic_lake import Habits, Rhythm, Upkeep
from barnabas.lake.upkeep import CompactionRules

MODES = ("key_value", "json", "avro")
NAMESPACE = "topics"


class TableSettings(BaseModel):
    """One topic and its table, as `[[tables]]` of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: str = Field(min_length=1)
    table: str = ""
    """namespace.name; default: `topics.` and the name of the topic, with _ for what SQL does not take."""
    mode: str = Field("key_value", pattern="^(key_value|json|avro)$")
    columns: dict[str, Any] | None = None
    """Mode json: names and types of the fields."""
    avro_schema: str = ""
    """Mode avro: a file with the schema of values that carry no id of a registry."""
    start: str = Field("earliest", pattern="^(earliest|latest)$")
    """Where an empty table begins."""
    partition_by: str = Field(BY_DAY, pattern=f"^({BY_DAY}|{NOT_AT_ALL})$")
    """Partitioning of the table when it is made."""
    skip_lost: bool = False
    """Continue after records that were deleted before the table had them."""
    commit_interval_ms: int | None = Field(None, ge=0)
    """None, here and below: as the file says."""
    batch_bytes: int | None = Field(None, ge=1)
    upkeep_interval_ms: int | None = Field(None, ge=0)
    small_files: int | None = Field(None, ge=2)
    orphan_age_ms: int | None = Field(None, ge=3_600_000)
    snapshot_age_ms: int | None = Field(None, ge=60_000)

    def habits(self, common: Habits) -> Habits:
        """Those of the file, with what this table has of its own."""
        rhythm, upkeep = common.rhythm, common.upkeep
        return Habits(
            Rhythm(
                _own(self.commit_interval_ms, rhythm.commit_interval_ms),
                _own(self.batch_bytes, rhythm.batch_bytes),
            ),
            Upkeep(
                _own(self.upkeep_interval_ms, upkeep.interval_ms),
                replace(upkeep.compaction, min_files=_own(self.small_files, upkeep.compaction.min_files)),
                _own(self.orphan_age_ms, upkeep.orphan_age_ms),
                _own(self.snapshot_age_ms, upkeep.snapshot_age_ms),
            ),
        )

    @property
    def identifier(self) -> str:
        return self.table or f"{NAMESPACE}.{re.sub(r'[^A-Za-z0-9_]', '_', self.topic)}"


class CatalogSettings(BaseModel):
    """`[catalog]` of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str = Field(min_length=1)
    warehouse: str = ""
    properties: dict[str, str] = Field(default_factory=dict)


class LakeFile(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    catalog: CatalogSettings | None = None
    tables: list[TableSettings] = Field(min_length=1)
    bootstrap_servers: str = ""
    schema_registry: str = ""
    commit_interval_ms: int = Field(60_000, ge=0)
    batch_bytes: int = Field(128 * 1024 * 1024, ge=1)
    upkeep_interval_ms: int = Field(600_000, ge=0)
    small_files: int = Field(16, ge=2)
    """Number of small files of one day that are made one."""
    orphan_age_ms: int = Field(3 * 24 * 3_600_000, ge=3_600_000)
    snapshot_age_ms: int = Field(5 * 24 * 3_600_000, ge=60_000)

    @property
    def habits(self) -> Habits:
        return Habits(
            Rhythm(self.commit_interval_ms, self.batch_bytes),
            Upkeep(
                self.upkeep_interval_ms,
                CompactionRules(min_files=self.small_files),
                self.orphan_age_ms,
                self.snapshot_age_ms,
            ),
        )


@dataclass(frozen=True, slots=True)
class LakeConfig:
    """Everything that a run needs but the cluster."""

    catalog: CatalogAddress
    tables: Sequence[TableSettings]
    habits: Habits = field(default_factory=Habits)
    skip_lost: bool = False
    schema_registry: str = ""


def read_file(path: Path) -> LakeFile:
    """Raises `WrongArgument`."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise WrongArgument(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongArgument(f"{path}: {error}") from None
    try:
        return LakeFile.model_validate(content)
    except ValidationError as error:
        raise WrongArgument(f"{path}: {_first(error)}") from None


def tables_of(topics: Sequence[str], settings: Mapping[str, Any]) -> list[TableSettings]:
    """One table for each topic, with the same settings. Raises `WrongArgument`."""
    try:
        return [TableSettings(topic=topic, **settings) for topic in topics]
    except ValidationError as error:
        raise WrongArgument(_first(error)) from None


def _own(value: int | None, common: int) -> int:
    return common if value is None else value


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}; got {first['input']!r}"
