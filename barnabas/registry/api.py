"""The REST interface of a registry: paths, and the shapes of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from barnabas.registry import errors
from barnabas.registry.decisions import Outcome, Registering
from barnabas.registry.forwarding import Forward
from barnabas.registry.http_side import ApiRequest, ApiResponse
from barnabas.registry.records import AVRO, PROTOBUF, SchemaValue, as_sequence
from barnabas.registry.requests import read_config, read_mode, read_schema, read_version
from barnabas.registry.service import RegistryService
from barnabas.runtime.version import version

MOST_LISTED = 20_000
"""Items of a list that is asked for without a limit."""
MOST_ANSWER_BYTES = 8 << 20
"""A list of schemas ends after the one that exceeds it; `offset` asks for the rest."""


class RegistryApi:
    """Answers requests; those that write are passed on to the leader if it is another registry."""

    def __init__(self, service: RegistryService, forward: Forward) -> None:
        self._service = service
        self._decisions = service.decisions
        self._forward = forward

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """Raises `RegistryError`."""
        match request.words:
            case ():
                return _only_get(request, {})
            case ("subjects", *rest):
                return await self._subjects(request, rest)
            case ("schemas", *rest):
                return await self._schemas(request, rest)
            case ("compatibility", "subjects", subject, "versions", *rest) if len(rest) < 2:
                return await self._compatibility(request, subject, rest)
            case ("config", *rest) if len(rest) < 2:
                return await self._config(request, rest[0] if rest else None)
            case ("mode", *rest) if len(rest) < 2:
                return await self._mode(request, rest[0] if rest else None)
            case ("contexts",):
                return _only_get(request, ["."])
            case ("v1", "metadata", "id"):
                cluster = {"kafka-cluster": "", "schema-registry-cluster": self._service.election.group_id}
                return _only_get(request, {"scope": {"path": [], "clusters": cluster}})
            case ("v1", "metadata", "version"):
                return _only_get(request, {"version": f"barnabas-{version()}", "commitId": ""})
            case _:
                raise errors.RegistryError(404, "HTTP 404 Not Found")

    # ---- subjects

    async def _subjects(self, request: ApiRequest, words: Sequence[str]) -> ApiResponse:
        match request.method, words:
            case "GET", []:
                return ApiResponse.of(self._list_subjects(request))
            case "POST", [subject]:
                return await self._look_up(request, subject)
            case "DELETE", [subject]:
                permanent = request.flag("permanent")
                return await self._write(request, lambda: self._decisions.delete_subject(subject, permanent=permanent))
            case "GET", [subject, "versions"]:
                return ApiResponse.of(self._list_versions(request, subject))
            case "POST", [subject, "versions"]:
                return await self._register(request, subject)
            case "DELETE", [subject, "versions", text]:
                number, permanent = read_version(text), request.flag("permanent")
                return await self._write(
                    request, lambda: self._decisions.delete_version(subject, number, permanent=permanent)
                )
            case "GET", [subject, "versions", text, *rest] if len(rest) < 2:
                return await self._version(request, subject, text, rest)
            case _, [] | [_] | [_, "versions"] | [_, "versions", _] | [_, "versions", _, "schema" | "referencedby"]:
                raise errors.RegistryError(405, "HTTP 405 Method Not Allowed")
            case _:
                raise errors.RegistryError(404, "HTTP 404 Not Found")

    def _list_subjects(self, request: ApiRequest) -> list[str]:
        deleted, only = request.flag("deleted"), request.flag("deletedOnly")
        found = self._decisions.state.subjects(deleted=deleted, deleted_only=only)
        prefix = request.query.get("subjectPrefix", "").removeprefix(":*:")
        return _page(request, [each for each in found if each.startswith(prefix)])

    def _list_versions(self, request: ApiRequest, subject: str) -> list[int]:
        only, with_deleted = request.flag("deletedOnly"), request.flag("deleted")
        if not self._decisions.state.has_subject(subject, deleted=only or with_deleted):
            raise errors.subject_not_found(subject)
        found = self._decisions.state.versions(subject, deleted=only or with_deleted)
        return _page(request, [each.version for each in found if each.deleted or not only])

    async def _version(self, request: ApiRequest, subject: str, text: str, rest: Sequence[str]) -> ApiResponse:
        with_deleted = request.flag("deleted") or rest == ["referencedby"]
        found = self._decisions.version(subject, read_version(text), deleted=with_deleted)
        match rest:
            case []:
                return ApiResponse.of(shown(found, await self._formatted(request, found)))
            case ["schema"]:
                return ApiResponse((await self._formatted(request, found)).encode(errors="replace"))
            case ["referencedby"]:
                referrers = self._decisions.state.referrers(subject, found.version, deleted=request.flag("deleted"))
                return ApiResponse.of(_page(request, sorted({each.id for each in referrers})))
            case _:
                raise errors.RegistryError(404, "HTTP 404 Not Found")

    async def _formatted(self, request: ApiRequest, value: SchemaValue) -> str:
        """The text of a schema; that of Protobuf as base64 of its descriptor if the query says so."""
        if request.query.get("format") == "serialized" and value.schema_type == PROTOBUF:
            parsed = await self._service.worker.run(lambda: self._decisions.parsed(value))
            return parsed.serialized()
        return value.schema

    async def _look_up(self, request: ApiRequest, subject: str) -> ApiResponse:
        schema = read_schema(request.body)
        normalize, deleted = request.flag("normalize"), request.flag("deleted")
        found = await self._service.worker.run(
            lambda: self._decisions.look_up(subject, schema, normalize=normalize, deleted=deleted)
        )
        return ApiResponse.of(shown(found, await self._formatted(request, found)))

    async def _register(self, request: ApiRequest, subject: str) -> ApiResponse:
        schema, options = read_schema(request.body), Registering(request.flag("normalize"), request.flag("force"))
        if schema.version == 0 and schema.id < 0:
            known = await self._service.worker.run(
                lambda: self._decisions.find(subject, schema, normalize=options.normalize, deleted=False)
            )
            if known is not None and self._decisions.state.mode_in_force(subject) == "READWRITE":
                return ApiResponse.of(registered(known))
        if passed_on := await self._pass_on(request):
            return passed_on
        return ApiResponse.of(registered(await self._service.register(subject, schema, options)))

    # ---- schemas by id

    async def _schemas(self, request: ApiRequest, words: Sequence[str]) -> ApiResponse:
        if request.method != "GET":
            raise errors.RegistryError(405, "HTTP 405 Method Not Allowed")
        match words:
            case []:
                return await self._service.worker.run(lambda: self._list_schemas(request))
            case ["types"]:
                return ApiResponse.of(["JSON", "PROTOBUF", AVRO])
            case ["ids", text]:
                return ApiResponse.of(await self._with_id(request, _id(text)))
            case ["ids", text, "schema"]:
                found = self._by_id(_id(text))
                return ApiResponse((await self._formatted(request, found)).encode(errors="replace"))
            case ["ids", text, "subjects"]:
                subjects = dict.fromkeys(each.subject for each in self._holders(request, text))
                return ApiResponse.of(_page(request, list(subjects)))
            case ["ids", text, "versions"]:
                holders = [{"subject": each.subject, "version": each.version} for each in self._holders(request, text)]
                return ApiResponse.of(_page(request, holders))
            case ["guids", guid]:
                return ApiResponse.of(await self._with_id(request, self._id_of_guid(guid)))
            case _:
                raise errors.RegistryError(404, "HTTP 404 Not Found")

    def _list_schemas(self, request: ApiRequest) -> ApiResponse:
        """Up to `limit` versions, as many as have room in an answer."""
        state, deleted = self._decisions.state, request.flag("deleted")
        prefix, latest_only = request.query.get("subjectPrefix", ""), request.flag("latestOnly")
        found: list[SchemaValue] = []
        for subject in state.subjects(deleted=deleted):
            if subject.startswith(prefix):
                versions = state.versions(subject, deleted=deleted)
                found += versions[-1:] if latest_only else versions
        written: list[bytes] = []
        room = MOST_ANSWER_BYTES
        for each in _page(request, found):
            written.append(ApiResponse.of(shown(each)).body)
            room -= len(written[-1])
            if room <= 0:
                break
        return ApiResponse(b"[" + b",".join(written) + b"]")

    def _by_id(self, schema_id: int) -> SchemaValue:
        found = self._decisions.state.by_id(schema_id)
        if found is None:
            raise errors.schema_not_found(schema_id)
        return found

    def _id_of_guid(self, guid: str) -> int:
        found = self._decisions.state.id_of_guid(guid.lower())
        if found is None:
            raise errors.schema_not_found(guid)
        return found

    async def _with_id(self, request: ApiRequest, schema_id: int) -> dict[str, Any]:
        found = self._by_id(schema_id)
        answer = shown(found, await self._formatted(request, found))
        for name in ("subject", "version", "id", "deleted"):
            answer.pop(name, None)
        if request.flag("fetchMaxId"):
            answer["maxId"] = self._decisions.state.max_id
        return answer

    def _holders(self, request: ApiRequest, text: str) -> list[SchemaValue]:
        self._by_id(_id(text))
        wanted, deleted = request.query.get("subject"), request.flag("deleted")
        return [
            each
            for each in self._decisions.state.with_id(_id(text))
            if (deleted or not each.deleted) and wanted in (None, each.subject)
        ]

    # ---- compatibility, config, mode

    async def _compatibility(self, request: ApiRequest, subject: str, words: Sequence[str]) -> ApiResponse:
        if request.method != "POST":
            raise errors.RegistryError(405, "HTTP 405 Method Not Allowed")
        number = read_version(words[0]) if words else None
        schema = read_schema(request.body)
        verbose = request.flag("verbose")
        try:
            messages = await self._service.worker.take(self._decisions.check(subject, schema, number))
        except errors.RegistryError as error:
            if error.error_code != 42201 or not verbose:
                raise
            messages = [error.message]
        answer: dict[str, Any] = {"is_compatible": not messages}
        return ApiResponse.of({**answer, "messages": messages} if verbose else answer)

    async def _config(self, request: ApiRequest, subject: str | None) -> ApiResponse:
        match request.method:
            case "GET":
                found = self._decisions.config(subject, default_to_global=request.flag("defaultToGlobal"))
                return ApiResponse.of(found)
            case "PUT":
                config = read_config(request.body)
                return await self._write(request, lambda: self._decisions.set_config(subject, config), _as_sent)
            case "DELETE":
                return await self._write(request, lambda: self._decisions.delete_config(subject))
            case _:
                raise errors.RegistryError(405, "HTTP 405 Method Not Allowed")

    async def _mode(self, request: ApiRequest, subject: str | None) -> ApiResponse:
        match request.method:
            case "GET":
                found = self._decisions.mode(subject, default_to_global=request.flag("defaultToGlobal"))
                return ApiResponse.of({"mode": found})
            case "PUT":
                mode, force = read_mode(request.body), request.flag("force")
                decide = partial(self._decisions.set_mode, subject, mode, force=force)
                return await self._write(request, decide, _in_mode)
            case "DELETE":
                return await self._write(request, lambda: self._decisions.delete_mode(subject), _in_mode)
            case _:
                raise errors.RegistryError(405, "HTTP 405 Method Not Allowed")

    # ---- writes

    async def _write(
        self, request: ApiRequest, decide: Callable[[], Outcome], show: Callable[[Any], object] = lambda answer: answer
    ) -> ApiResponse:
        if passed_on := await self._pass_on(request):
            return passed_on
        return ApiResponse.of(show(await self._service.change(decide)))

    async def _pass_on(self, request: ApiRequest) -> ApiResponse | None:
        """The leader's answer, if that is another registry. Raises `RegistryError` if nobody leads."""
        election = self._service.election
        await election.settle()
        if election.leads:
            return None
        if election.leader_url is None or not request.forwards:
            raise errors.unknown_leader()
        return await self._forward(election.leader_url, request)


def shown(value: SchemaValue, schema: str | None = None) -> dict[str, Any]:
    """A version as the interface shows it."""
    answer: dict[str, Any] = {"subject": value.subject, "version": value.version, "id": value.id}
    answer["guid"] = value.guid
    if value.schema_type != AVRO:
        answer["schemaType"] = value.schema_type
    if value.references:
        answer["references"] = as_sequence(value.references)
    for name, part in (("metadata", value.metadata), ("ruleSet", value.rule_set)):
        if part is not None:
            answer[name] = part
    answer["schema"] = value.schema if schema is None else schema
    return answer | ({"deleted": True} if value.deleted else {})


def registered(value: SchemaValue) -> dict[str, Any]:
    """The answer to a registration. Without the schema: clients would take the text that is kept for what they sent."""
    return {"id": value.id, "version": value.version, "guid": value.guid}


def _as_sent(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the name that its level has in requests."""
    return {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}


def _in_mode(mode: str) -> dict[str, str]:
    return {"mode": mode}


def _only_get(request: ApiRequest, value: object) -> ApiResponse:
    if request.method != "GET":
        raise errors.RegistryError(405, "HTTP 405 Method Not Allowed")
    return ApiResponse.of(value)


def _page(request: ApiRequest, found: list[Any]) -> list[Any]:
    offset, limit = _number(request, "offset", 0), _number(request, "limit", MOST_LISTED)
    return found[offset : offset + limit]


def _number(request: ApiRequest, name: str, default: int) -> int:
    text = request.query.get(name, "")
    return min(int(text), MOST_LISTED) if text.isascii() and text.isdigit() and len(text) < 10 else default


def _id(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return int(text)
    raise errors.RegistryError(404, "HTTP 404 Not Found")
