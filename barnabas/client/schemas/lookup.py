"""A schema registry, as serializers ask it. Blocks: it is called in a thread."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from barnabas.client.errors import SerializationException
from barnabas.runtime.sasl.http_exchange import HttpFailed, HttpRequest, answer_of

JSON = "application/vnd.schemaregistry.v1+json"
MOST_REFERENCES = 500
MOST_ANSWER_BYTES = 16 << 20
"""A schema in JSON is up to six times as long as its text."""


class RegistryUnavailable(SerializationException):
    """No registry answered, or one had an error of its own. The same question may be answered later."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry, with all that it refers to: names and texts, each before those that need it."""

    id: int
    schema_type: str
    schema: str
    references: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema of a serializer. References are (name, subject, version)."""

    schema_type: str
    schema: str
    references: Sequence[tuple[str, str, int]] = ()

    def body(self) -> bytes:
        references = [dict(zip(("name", "subject", "version"), each, strict=True)) for each in self.references]
        return json.dumps({"schema": self.schema, "schemaType": self.schema_type, "references": references}).encode()


@dataclass(frozen=True, slots=True)
class RegistryLookup:
    """One registry, or several that share a topic: the first that answers is used."""

    urls: Sequence[str]
    authorization: str = field(default="", repr=False)
    """The header of that name; empty: none is sent."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """For https; None: the issuers that the system trusts."""
    timeout_ms: int = 10_000

    def by_id(self, schema_id: int, form: str = "") -> RegisteredSchema:
        """Raises SerializationException."""
        found = self._ask("GET", f"/schemas/ids/{schema_id}" + (f"?format={form}" if form else ""))
        return self._registered(schema_id, found, form)

    def latest(self, subject: str, form: str = "") -> RegisteredSchema:
        """The newest version of a subject. Raises SerializationException."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        found = self._ask("GET", path + (f"?format={form}" if form else ""))
        return self._registered(int(found["id"]), found, form)

    def register(self, subject: str, schema: NewSchema, *, normalize: bool = False) -> int:
        """The id of the schema, new or known. Raises SerializationException."""
        path = f"/subjects/{quote(subject, safe='')}/versions?normalize={str(normalize).lower()}"
        return int(self._ask("POST", path, schema.body())["id"])

    def find(self, subject: str, schema: NewSchema, *, normalize: bool = False) -> Mapping[str, Any]:
        """The version that has this schema: its `id` and `version`. Raises SerializationException if there is none."""
        path = f"/subjects/{quote(subject, safe='')}?normalize={str(normalize).lower()}"
        found: Mapping[str, Any] = self._ask("POST", path, schema.body())
        return found

    def ask(self, path: str) -> Any:
        """The answer to a GET, as JSON. Raises SerializationException."""
        return self._ask("GET", path)

    def _registered(self, schema_id: int, found: Mapping[str, Any], form: str) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._add_references(found, form, references)
        return RegisteredSchema(
            schema_id, found.get("schemaType") or "AVRO", str(found["schema"]), tuple(references.items())
        )

    def _add_references(self, found: Mapping[str, Any], form: str, references: dict[str, str]) -> None:
        for each in found.get("references") or ():
            if each["name"] in references:
                continue
            if len(references) >= MOST_REFERENCES:
                raise SerializationException(f"the schema has more than {MOST_REFERENCES} references")
            references[each["name"]] = ""  # a circle ends here
            path = f"/subjects/{quote(each['subject'], safe='')}/versions/{each['version']}?deleted=true"
            inner = self._ask("GET", path + (f"&format={form}" if form else ""))
            self._add_references(inner, form, references)
            # It comes behind those that it needs.
            del references[each["name"]]
            references[each["name"]] = str(inner["schema"])

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        headers = {"Accept": JSON, "Content-Type": JSON}
        if self.authorization:
            headers["Authorization"] = self.authorization
        failures = []
        for url in self.urls:
            seconds = self.timeout_ms / 1000
            try:
                asked = HttpRequest(
                    url.rstrip("/") + path,
                    headers,
                    body,
                    self.tls,
                    seconds=seconds,
                    method=method,
                    most_bytes=MOST_ANSWER_BYTES,
                )
                answer = answer_of(asked)
            except HttpFailed as error:
                failures.append(str(error))
                continue
            return self._read(url, answer.status, answer.body)
        raise RegistryUnavailable(f"no schema registry answered: {'; '.join(failures)}")

    @staticmethod
    def _read(url: str, status: int, body: bytes) -> Any:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            raise SerializationException(f"the schema registry {url} answered {status} without JSON") from None
        if status != 200:
            reason = found.get("message") if isinstance(found, dict) else None
            kind = RegistryUnavailable if status >= 500 else SerializationException
            raise kind(f"the schema registry {url} answered {status}: {reason}")
        return found
