"""Stories on the API of a registry. Paths, codes and messages are those of Confluent's registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.barnabas.registry.rig import Rig, record

A, A_TEXT, AB = record("a:int"), record("a:string"), record("a:int", "b:int=0")


async def test_a_schema_has_one_id_under_all_subjects() -> None:
    rig = Rig()
    assert await rig.register("one", A) == 1
    assert await rig.register("one", A) == 1
    assert await rig.register("two", A) == 1
    assert await rig.register("two", AB) == 2
    assert await rig.ask("GET", "/subjects") == (200, ["one", "two"])
    assert await rig.ask("GET", "/subjects/two/versions") == (200, [1, 2])
    status, answer = await rig.ask("GET", "/subjects/two/versions/latest")
    assert (status, answer["version"], answer["id"], answer["schema"]) == (200, 2, 2, AB)
    assert "schemaType" not in answer, "as Confluent's registry leaves it out for Avro"


async def test_spaces_and_the_order_of_properties_make_no_new_schema() -> None:
    rig = Rig()
    await rig.register("s", '{"name": "R", "type": "record", "fields": [{"type": "int", "name": "a"}]}')
    assert (await rig.ask("POST", "/subjects/s", {"schema": A}))[1]["id"] == 1
    assert (await rig.ask("GET", "/schemas/ids/1"))[1]["schema"] == A


async def test_a_schema_is_found_by_its_id_and_guid() -> None:
    rig = Rig()
    await rig.register("one", A)
    await rig.register("two", A)
    _, answer = await rig.ask("GET", "/schemas/ids/1?fetchMaxId=true")
    assert (answer["schema"], answer["maxId"]) == (A, 1)
    assert (await rig.ask("GET", f"/schemas/guids/{answer['guid']}"))[1]["schema"] == A
    assert await rig.ask("GET", "/schemas/ids/1/subjects") == (200, ["one", "two"])
    versions = [{"subject": "one", "version": 1}, {"subject": "two", "version": 1}]
    assert await rig.ask("GET", "/schemas/ids/1/versions") == (200, versions)
    assert await rig.ask("GET", "/schemas/ids/1/schema") == (200, json.loads(A))
    assert await rig.ask("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])


REFUSALS: list[tuple[str, str, Any, int, int, str]] = [
    ("GET", "/subjects/x/versions", None, 404, 40401, "Subject 'x' not found."),
    ("GET", "/subjects/x/versions/1", None, 404, 40401, "Subject 'x' not found."),
    ("POST", "/subjects/x", {"schema": A}, 404, 40401, "Subject 'x' not found."),
    ("DELETE", "/subjects/x", None, 404, 40401, "Subject 'x' not found."),
    ("DELETE", "/subjects/x/versions/1", None, 404, 40401, "Subject 'x' not found."),
    ("DELETE", "/config/x", None, 404, 40401, "Subject 'x' not found."),
    ("GET", "/subjects/s/versions/9", None, 404, 40402, "Version 9 not found."),
    ("DELETE", "/subjects/s/versions/9", None, 404, 40402, "Version 9 not found."),
    ("POST", "/compatibility/subjects/s/versions/9", {"schema": A}, 404, 40402, "Version 9 not found."),
    ("GET", "/schemas/ids/9", None, 404, 40403, "Schema 9 not found"),
    ("POST", "/subjects/s", {"schema": AB}, 404, 40403, "Schema not found"),
    ("GET", "/config/s", None, 404, 40408, "Subject 's' does not have subject-level compatibility configured"),
    ("GET", "/mode/s", None, 404, 40409, "Subject 's' does not have subject-level mode configured"),
    ("POST", "/subjects/s/versions", {"schema": "{"}, 422, 42201, "Invalid schema of type AVRO, details: not JSON"),
    ("POST", "/subjects/s/versions", {"schema": ""}, 422, 42201, "Empty schema"),
    ("POST", "/subjects/s/versions", {}, 422, 42201, "Empty schema"),
    ("POST", "/subjects/s/versions", {"schema": A, "schemaType": "XML"}, 422, 42201, "Invalid schema type XML"),
    ("POST", "/subjects/s/versions", {"schema": '"Nope"'}, 422, 42201, "Invalid schema of type AVRO, details: Undef"),
    (
        "POST",
        "/subjects/s/versions",
        {"schema": '"R"', "references": [{"name": "R", "subject": "x", "version": 1}]},
        422,
        42201,
        'Invalid schema of type AVRO, details: No schema reference found for subject "x" and version 1',
    ),
    ("GET", "/subjects/s/versions/0", None, 422, 42202, "The specified version '0' is not a valid version id."),
    ("GET", "/subjects/s/versions/earliest", None, 422, 42202, "The specified version 'earliest' is not a valid"),
    ("GET", "/subjects/s/versions/2147483648", None, 422, 42202, "The specified version '2147483648' is not a valid"),
    ("PUT", "/config", {"compatibility": "SOME"}, 422, 42203, "Invalid compatibility level. Valid values are none, "),
    ("PUT", "/mode", {"mode": "ASLEEP"}, 422, 42204, "Invalid mode. Valid values are READWRITE, READONLY"),
    ("PUT", "/mode/s", {"mode": "IMPORT"}, 422, 42205, "Cannot import since found existing subjects"),
    ("POST", "/subjects/s/versions", {"schema": AB, "id": 7}, 422, 42205, "Subject s in context . is not in import"),
    ("POST", "/subjects/:.c:x/versions", {"schema": A}, 422, 42208, "The specified subject ':.c:x' is not a valid."),
    ("POST", "/subjects/s/versions", {"schema": A_TEXT}, 409, 409, 'an earlier schema for subject "s"'),
    ("POST", "/subjects/s/versions", {"schema": "x" * (600 << 10)}, 422, 42209, "schema is too large"),
    ("POST", "/subjects/s/versions", b"{", 422, 422, "the body must be JSON"),
    ("POST", "/subjects/s/versions", b"[]", 422, 422, "the body must be a JSON object"),
    ("POST", "/subjects/s/versions", {"schema": A, "references": [{}]}, 422, 422, "a reference must have a name"),
    ("GET", "/nothing", None, 404, 404, "HTTP 404 Not Found"),
    ("PUT", "/subjects/s", None, 405, 405, "HTTP 405 Method Not Allowed"),
]


@pytest.mark.parametrize(("method", "target", "body", "status", "code", "message"), REFUSALS)
async def test_a_refusal_has_its_code_and_message(
    method: str, target: str, body: Any, status: int, code: int, message: str
) -> None:
    rig = Rig()
    await rig.register("s", A)
    before = list(rig.store.records)
    found, answer = await rig.ask(method, target, body)
    assert (found, answer["error_code"]) == (status, code), answer
    assert message in answer["message"]
    assert rig.store.records == before, "nothing is written"


async def test_a_deleted_version_can_be_seen_until_it_is_removed() -> None:
    rig = Rig()
    await rig.register("s", A)
    await rig.register("s", AB)
    code = (await rig.ask("DELETE", "/subjects/s/versions/2?permanent=true"))[1]["error_code"]
    assert code == 40407
    assert await rig.ask("DELETE", "/subjects/s/versions/2") == (200, 2)
    assert await rig.ask("GET", "/subjects/s/versions") == (200, [1])
    assert await rig.ask("GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert await rig.ask("GET", "/subjects/s/versions?deletedOnly=true") == (200, [2])
    assert (await rig.ask("DELETE", "/subjects/s/versions/2"))[1]["error_code"] == 40406
    assert (await rig.ask("GET", "/schemas/ids/2"))[0] == 200, "data with its id can be read"
    assert await rig.ask("DELETE", "/subjects/s/versions/2?permanent=true") == (200, 2)
    assert (await rig.ask("GET", "/schemas/ids/2"))[1]["error_code"] == 40403
    assert await rig.register("s", AB) == 3, "ids are not used again"
    assert await rig.ask("GET", "/subjects/s/versions") == (200, [1, 2])


async def test_a_deleted_subject_comes_back_with_the_next_version() -> None:
    rig = Rig()
    await rig.register("s", A)
    await rig.register("s", AB)
    assert (await rig.ask("DELETE", "/subjects/s?permanent=true"))[1]["error_code"] == 40405
    assert await rig.ask("DELETE", "/subjects/s") == (200, [1, 2])
    assert await rig.ask("GET", "/subjects") == (200, [])
    assert await rig.ask("GET", "/subjects?deleted=true") == (200, ["s"])
    assert (await rig.ask("DELETE", "/subjects/s"))[1]["error_code"] == 40404
    assert await rig.register("s", A) == 1, "the id of the same schema"
    assert await rig.ask("GET", "/subjects/s/versions") == (200, [3])
    assert await rig.ask("GET", "/subjects/s/versions?deleted=true") == (200, [2, 3]), "version 1 gave way to it"
    await rig.ask("DELETE", "/subjects/s")
    assert await rig.ask("DELETE", "/subjects/s?permanent=true") == (200, [2, 3])
    assert await rig.ask("GET", "/subjects?deleted=true") == (200, [])


async def test_a_schema_that_others_refer_to_stays() -> None:
    rig = Rig()
    await rig.register("inner", record("z:int", name="I"))
    outer = record("i:I", name="O")
    reference = {"name": "I", "subject": "inner", "version": 1}
    await rig.register("outer", outer, references=[reference])
    assert (await rig.ask("GET", "/subjects/outer/versions/1"))[1]["references"] == [reference]
    assert await rig.ask("GET", "/subjects/inner/versions/1/referencedby") == (200, [2])
    for target in ("/subjects/inner", "/subjects/inner/versions/1"):
        status, answer = await rig.ask("DELETE", target)
        key = "{magic=1,keytype=SCHEMA,subject=inner,version=1}"
        assert (status, answer["error_code"]) == (422, 42206)
        assert answer["message"] == f"One or more references exist to the schema {key}."
    await rig.ask("DELETE", "/subjects/outer")
    assert await rig.ask("DELETE", "/subjects/inner") == (200, [1])


async def test_levels_of_subjects_win_over_the_global_one() -> None:
    rig = Rig()
    assert await rig.ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert await rig.ask("PUT", "/config", {"compatibility": "none"}) == (200, {"compatibility": "NONE"})
    assert await rig.ask("PUT", "/config/s", {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert await rig.ask("GET", "/config/t?defaultToGlobal=true") == (200, {"compatibilityLevel": "NONE"})
    await rig.register("s", A)
    await rig.register("t", A)
    assert (await rig.ask("POST", "/subjects/s/versions", {"schema": A_TEXT}))[0] == 409
    assert await rig.register("t", A_TEXT) == 2
    assert await rig.ask("DELETE", "/config/s") == (200, {"compatibilityLevel": "FULL"})
    assert await rig.register("s", A_TEXT) == 2


async def test_a_check_says_what_is_not_compatible() -> None:
    rig = Rig()
    await rig.register("s", A)
    check = "/compatibility/subjects/s/versions/latest"
    assert await rig.ask("POST", check, {"schema": AB}) == (200, {"is_compatible": True})
    assert await rig.ask("POST", check, {"schema": A_TEXT}) == (200, {"is_compatible": False})
    _, answer = await rig.ask("POST", f"{check}?verbose=true", {"schema": A_TEXT})
    assert answer["messages"] == [
        "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in the new schema does "
        "not match with the old schema', additionalInfo:'reader type: STRING not compatible with writer type: INT'}",
        "{oldSchemaVersion: 1}",
        f"{{oldSchema: '{A}'}}",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    ]
    _, answer = await rig.ask("POST", f"{check}?verbose=true", {"schema": "{"})
    assert (answer["is_compatible"], len(answer["messages"])) == (False, 1)


async def test_transitive_levels_look_at_all_versions() -> None:
    rig = Rig()
    await rig.ask("PUT", "/config", {"compatibility": "NONE"})
    await rig.register("s", A)
    await rig.register("s", record("b:int=0"))
    await rig.ask("PUT", "/config", {"compatibility": "BACKWARD"})
    later = record("b:int=0", 'a:string=""')
    check = "/compatibility/subjects/s/versions"
    assert await rig.ask("POST", check, {"schema": later}) == (200, {"is_compatible": True})
    await rig.ask("PUT", "/config", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert await rig.ask("POST", check, {"schema": later}) == (200, {"is_compatible": False})


async def test_a_read_only_subject_takes_nothing() -> None:
    rig = Rig()
    await rig.register("s", A)
    assert await rig.ask("PUT", "/mode/s", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    for method, target, body in [
        ("POST", "/subjects/s/versions", {"schema": AB}),
        ("DELETE", "/subjects/s", None),
        ("DELETE", "/subjects/s/versions/1", None),
        ("PUT", "/config/s", {"compatibility": "NONE"}),
    ]:
        status, answer = await rig.ask(method, target, body)
        assert (status, answer["error_code"]) == (422, 42205), (method, target, answer)
        assert answer["message"] == "Subject s in context . is in read-only mode"
    assert await rig.register("t", AB) == 2
    assert await rig.ask("PUT", "/mode", {"mode": "READONLY_OVERRIDE"}) == (200, {"mode": "READONLY_OVERRIDE"})
    assert (await rig.ask("POST", "/subjects/t/versions", {"schema": A}))[1]["error_code"] == 42205
    assert await rig.ask("DELETE", "/mode") == (200, {"mode": "READONLY_OVERRIDE"})
    assert await rig.ask("DELETE", "/mode/s") == (200, {"mode": "READONLY"})
    assert await rig.register("s", AB) == 2


async def test_schemas_are_imported_with_their_ids_and_versions() -> None:
    rig = Rig()
    assert await rig.ask("PUT", "/mode", {"mode": "IMPORT"}) == (200, {"mode": "IMPORT"})
    assert await rig.register("s", A, id=100, version=5) == 100
    assert await rig.register("s", A_TEXT, id=50, version=3) == 50, "not compared with others"
    assert await rig.ask("GET", "/subjects/s/versions") == (200, [3, 5])
    status, answer = await rig.ask("POST", "/subjects/t/versions", {"schema": AB, "id": 100})
    assert (status, answer["error_code"]) == (422, 42207)
    await rig.ask("PUT", "/mode", {"mode": "READWRITE"})
    assert await rig.register("t", AB) == 101
    assert await rig.ask("GET", "/subjects/s/versions/latest/schema") == (200, json.loads(A))


async def test_normalized_schemas_are_one() -> None:
    rig = Rig()
    one = '{"type":"object","properties":{"a":{"type":"string"}}}'
    other = '{"properties":{"a":{"type":"string"}},"type":"object"}'
    assert await rig.register("j", one, schemaType="JSON") == 1
    assert (await rig.ask("POST", "/subjects/j", {"schema": other, "schemaType": "JSON"}))[1]["error_code"] == 40403
    await rig.ask("PUT", "/config/k", {"normalize": True})
    assert await rig.register("k", one, schemaType="JSON") == await rig.register("k", other, schemaType="JSON")
    assert await rig.ask("GET", "/subjects/k/versions") == (200, [1])


async def test_a_subject_may_change_the_type_of_its_schemas_without_compatibility_alone() -> None:
    rig = Rig()
    await rig.register("s", A)
    text = 'syntax = "proto3"; message R { int32 a = 1; }'
    status, answer = await rig.ask("POST", "/subjects/s/versions", {"schema": text, "schemaType": "PROTOBUF"})
    assert (status, answer["error_code"]) == (409, 409)
    assert "Incompatible because of different schema type" in answer["message"]
    await rig.ask("PUT", "/config/s", {"compatibility": "NONE"})
    assert await rig.register("s", text, schemaType="PROTOBUF") == 2
    _, answer = await rig.ask("GET", "/subjects/s/versions/2")
    assert answer["schemaType"] == "PROTOBUF"
    assert answer["schema"] == 'syntax = "proto3";\n\nmessage R {\n  int32 a = 1;\n}\n'


async def test_writes_go_to_the_leader() -> None:
    rig = Rig()
    await rig.register("s", A)
    rig.election.leads, rig.election.leader_url = False, "http://other:8081"
    assert await rig.register("s", A) == 1, "what is known needs no leader"
    for method, target, body in [
        ("POST", "/subjects/s/versions", {"schema": AB}),
        ("DELETE", "/subjects/s", None),
        ("PUT", "/config", {"compatibility": "NONE"}),
        ("PUT", "/mode", {"mode": "READONLY"}),
    ]:
        assert await rig.ask(method, target, body) == (200, {"from": "the leader"})
        assert rig.passed_on[-1] == ("http://other:8081", target)
        assert (await rig.ask(method, target, body, forwards=False))[1]["error_code"] == 50004, "it is passed on once"
    rig.election.leader_url = None
    assert (await rig.ask("DELETE", "/subjects/s"))[1]["error_code"] == 50004
    assert await rig.ask("GET", "/subjects") == (200, ["s"])


async def test_the_topic_holds_all() -> None:
    rig = Rig()
    await rig.ask("PUT", "/config/s", {"compatibility": "NONE"})
    await rig.register("s", A)
    await rig.register("s", A_TEXT)
    await rig.register("t", '{"type":"string"}', schemaType="JSON")
    await rig.ask("DELETE", "/subjects/s/versions/1")
    await rig.ask("DELETE", "/subjects/t")
    await rig.ask("PUT", "/mode/u", {"mode": "READONLY"})
    again = Rig(rig.store.records)
    targets = "/subjects", "/subjects?deleted=true", "/schemas?deleted=true", "/config/s", "/mode/u", "/schemas/ids/1"
    for target in targets:
        assert await again.ask("GET", target) == await rig.ask("GET", target)
    assert await again.register("v", AB) == 4
