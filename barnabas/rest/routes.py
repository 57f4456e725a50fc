"""The paths of the REST interface, on the page's server."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from quart import Blueprint, Response, request
from werkzeug.exceptions import HTTPException

from barnabas.client.admin import Admin, ConfigResource, NewTopic, ResourceType
from barnabas.group_views.kinds import describe_groups
from barnabas.group_views.progress import progress_of
from barnabas.rest.errors import RestError, refused
from barnabas.rest.reading import wanted_of
from barnabas.rest.service import Rest
from barnabas.rest.shapes import Json, Shapes

ROOT = "/v3"
TOKEN_HEADER = "X-Barnabas-Token"
MOST_BODY_BYTES = 1 << 20
_WRITING = ("POST", "DELETE")
_CLUSTER = "/clusters/<cluster_id>"
_TOPIC = f"{_CLUSTER}/topics/<topic>"
_GROUP = f"{_CLUSTER}/consumer-groups/<group>"


def rest_routes(rest: Rest, token: str) -> Blueprint:
    """`token` is needed by requests that change something."""
    routes = Blueprint("rest", __name__, url_prefix=ROOT)

    async def check_writer() -> Response | None:
        if request.method not in _WRITING:
            return None
        if not rest.allow_writes:
            return _error(RestError(405, 405, "the interface is read-only; start the page with --allow-writes"))
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower() != f"{request.scheme}://{request.host}".lower():
            return _error(RestError(403, 40301, "the Origin header names another page"))
        if not hmac.compare_digest(request.headers.get(TOKEN_HEADER, "").encode(), token.encode()):
            return _error(RestError(403, 40301, f"{TOKEN_HEADER} must be the token that `barnabas page` printed"))
        return None

    routes.before_request(check_writer)
    routes.register_error_handler(RestError, _error)
    routes.register_error_handler(HTTPException, _of_http)
    handlers = _Handlers(rest)
    for path, method, handler in (
        ("/clusters", "GET", handlers.clusters),
        (_CLUSTER, "GET", handlers.cluster),
        (f"{_CLUSTER}/brokers", "GET", handlers.brokers),
        (f"{_CLUSTER}/topics", "GET", handlers.topics),
        (f"{_CLUSTER}/topics", "POST", handlers.create_topic),
        (_TOPIC, "GET", handlers.topic),
        (_TOPIC, "DELETE", handlers.delete_topic),
        (f"{_TOPIC}/partitions", "GET", handlers.partitions),
        (f"{_TOPIC}/configs", "GET", handlers.configs),
        (f"{_TOPIC}/records", "GET", handlers.read),
        (f"{_TOPIC}/records", "POST", handlers.write),
        (f"{_CLUSTER}/consumer-groups", "GET", handlers.groups),
        (_GROUP, "GET", handlers.group),
        (f"{_GROUP}/lags", "GET", handlers.lags),
    ):
        routes.add_url_rule(path, f"{method} {path}", handler, methods=[method])
    return routes


class _Handlers:
    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def _shapes(self, cluster_id: str) -> Shapes:
        return await self._rest.shapes(_base(), cluster_id)

    async def clusters(self) -> Response:
        found = await self._rest.call(lambda admin: admin.describe_cluster())
        return _json(Shapes(_base(), found.cluster_id).clusters(found))

    async def cluster(self, cluster_id: str) -> Response:
        shapes = await self._shapes(cluster_id)
        return _json(shapes.cluster(await self._rest.call(lambda admin: admin.describe_cluster())))

    async def brokers(self, cluster_id: str) -> Response:
        shapes = await self._shapes(cluster_id)
        found = await self._rest.call(lambda admin: admin.describe_cluster())
        return _json(shapes.listing("KafkaBroker", map(shapes.broker, found.nodes), "brokers"))

    # ---- topics

    async def topics(self, cluster_id: str) -> Response:
        shapes = await self._shapes(cluster_id)

        async def described(admin: Admin) -> list[Any]:
            names = await admin.list_topics(list_internal=True)
            return list((await admin.describe_topics(names)).succeeded.values()) if names else []

        found = await self._rest.call(described)
        return _json(shapes.listing("KafkaTopic", map(shapes.topic, found), "topics"))

    async def topic(self, cluster_id: str, topic: str) -> Response:
        shapes = await self._shapes(cluster_id)
        return _json(shapes.topic(await self._rest.call(_described(topic))))

    async def partitions(self, cluster_id: str, topic: str) -> Response:
        shapes = await self._shapes(cluster_id)
        found = (await self._rest.call(_described(topic))).partitions
        data = (shapes.partition(topic, each) for each in found)
        return _json(shapes.listing("KafkaPartition", data, "topics", topic, "partitions"))

    async def configs(self, cluster_id: str, topic: str) -> Response:
        shapes = await self._shapes(cluster_id)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = await self._rest.call(lambda admin: _one(admin.describe_configs([resource]), resource))
        data = (shapes.topic_config(topic, entry) for entry in found.values())
        return _json(shapes.listing("KafkaTopicConfig", data, "topics", topic, "configs"))

    async def create_topic(self, cluster_id: str) -> Response:
        shapes = await self._shapes(cluster_id)
        new, validate_only = _new_topic(await _object())

        async def create(admin: Admin) -> Any:
            (await admin.create_topics([new], validate_only=validate_only))[new.name]
            return None if validate_only else await _described(new.name)(admin)

        found = await self._rest.call(create)
        return _json({} if found is None else shapes.topic(found), 200 if found is None else 201)

    async def delete_topic(self, cluster_id: str, topic: str) -> Response:
        await self._shapes(cluster_id)
        await self._rest.call(lambda admin: _one(admin.delete_topics([topic]), topic))
        return Response(status=204)

    # ---- records

    async def read(self, cluster_id: str, topic: str) -> Response:
        await self._shapes(cluster_id)
        query = dict(request.args.items())
        after = query.pop("after", "") or request.headers.get("Last-Event-ID", "")
        wanted = wanted_of(query, after)
        if "text/event-stream" not in request.headers.get("Accept", ""):
            if wanted.group is not None:
                raise refused("a group reads server-sent events only: send Accept: text/event-stream")
            return _json(await self._rest.records(topic, wanted))
        response = Response(
            await self._rest.events(topic, wanted), content_type="text/event-stream; charset=utf-8"
        )
        response.timeout = None
        return response

    async def write(self, cluster_id: str, topic: str) -> Response:
        await self._shapes(cluster_id)
        await self._rest.call(_described(topic))
        answers = [answer async for answer in self._rest.write(topic, await _body(), cluster_id)]
        if len(answers) == 1:
            code = answers[0]["error_code"]
            return _json(answers[0], code if code < 1000 else int(str(code)[:3]))
        return Response("".join(json.dumps(each) + "\r\n" for each in answers), content_type="application/json")

    # ---- groups

    async def groups(self, cluster_id: str) -> Response:
        shapes = await self._shapes(cluster_id)
        found = await self._rest.call(lambda admin: admin.list_groups())
        return _json(shapes.listing("KafkaConsumerGroup", map(shapes.group, found), "consumer-groups"))

    async def group(self, cluster_id: str, group: str) -> Response:
        shapes = await self._shapes(cluster_id)
        found = {each.group_id: each for each in await self._rest.call(lambda admin: admin.list_groups())}
        if group not in found:
            raise RestError(404, 40403, f"there is no group {group}")
        return _json(shapes.group(found[group]))

    async def lags(self, cluster_id: str, group: str) -> Response:
        shapes = await self._shapes(cluster_id)

        async def read(admin: Admin) -> list[Any]:
            described = (await describe_groups(admin, [group]))[group]
            return await progress_of(admin, group, described.assigned(), is_shared=described.is_share)

        data = [shapes.lag(group, each) for each in await self._rest.call(read)]
        return _json(shapes.listing("KafkaConsumerLag", data, "consumer-groups", group, "lags"))


def _described(topic: str) -> Callable[[Admin], Awaitable[Any]]:
    return lambda admin: _one(admin.describe_topics(topic), topic)


async def _one(asked: Awaitable[Mapping[Any, Any]], key: Any) -> Any:
    return (await asked)[key]


def _new_topic(body: Json) -> tuple[NewTopic, bool]:
    """The topic of a request, and True if it is only checked. Raises `RestError`."""
    known = {"topic_name", "partitions_count", "replication_factor", "configs", "validate_only"}
    unknown = sorted(set(body) - known)
    if unknown:
        raise refused(f"there is no field {unknown[0]}; allowed are {', '.join(sorted(known))}")
    name, configs = body.get("topic_name"), body.get("configs", [])
    if not isinstance(name, str):
        raise refused(f"topic_name must be a string; got {name!r}")
    numbers = []
    for field in ("partitions_count", "replication_factor"):
        number = body.get(field, -1)
        if type(number) is not int or not -1 <= number < 2**31:
            raise refused(f"{field} must be a number; got {number!r}")
        numbers.append(number)
    is_list = isinstance(configs, list) and all(isinstance(each, dict) and "name" in each for each in configs)
    if not is_list:
        raise refused('configs must be a list of {"name": …, "value": …}')
    values = {str(each["name"]): str(each.get("value", "")) for each in configs}
    return NewTopic(name, numbers[0], numbers[1], configs=values), body.get("validate_only") is True


async def _body() -> bytes:
    data = cast(bytes, await request.get_data())
    if len(data) > MOST_BODY_BYTES:
        raise RestError(413, 413, f"a body may have at most {MOST_BODY_BYTES} bytes")
    return data


async def _object() -> Json:
    try:
        found = json.loads(await _body())
    except (ValueError, RecursionError):
        raise refused("the body must be JSON") from None
    if not isinstance(found, dict):
        raise refused("the body must be a JSON object")
    return found


def _base() -> str:
    return f"{request.scheme}://{request.host}{ROOT}"


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status=status, content_type="application/json")


def _of_http(error: HTTPException) -> Response:
    code = error.code or 500
    return _error(RestError(code, code, " ".join((error.description or error.name).split())))


def _error(error: RestError) -> Response:
    return _json(error.to_json(), error.status)
