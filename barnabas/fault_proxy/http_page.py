"""The HTTP port of a proxy: rules, links, brokers and the newest messages as JSON, and a plain page of them.

Requests are hostile: only those whose Host header names this address are answered, a change needs a body of JSON (which
a foreign page cannot send without asking first), and bodies are bounded. With a token, every request needs it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, cast

import trio
from hypercorn.typing import Framework
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.fault_proxy.listeners import ClusterProxy
from barnabas.fault_proxy.recorder import NEWEST, Recorder
from barnabas.fault_proxy.rule_book import Rule
from barnabas.fault_proxy.rules_file import link_of, rule_of
from barnabas.page.server import PageAddress
from barnabas.runtime.http_token import CHALLENGE, HttpToken
from barnabas.runtime.visible import visible_lines
from barnabas.web import listen, serve_app

MOST_BODY_BYTES = 64 << 10
BODY_SECONDS = 5
ROWS = 40
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class HttpPage:
    """The page of one proxy."""

    def __init__(
        self, proxy: ClusterProxy, recorder: Recorder, host: str, port: int, token: HttpToken | None = None
    ) -> None:
        """With `token` every request needs it. Raises `ClusterError` if the port is not free."""
        try:
            self._listener = listen(host, port, "the HTTP port of the proxy")
        except ClusterError as error:
            raise ClusterError(str(error).replace("--port", "--http-port")) from None
        self.address = PageAddress(host, self._listener.getsockname()[1])
        self._proxy = proxy
        self._recorder = recorder
        self._token = token
        recorder.keep_newest()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        await serve_app(cast(Framework, self._app()), self._listener, task_status=task_status)

    def _app(self) -> QuartTrio:
        app = QuartTrio("barnabas.fault_proxy")
        app.config["MAX_CONTENT_LENGTH"] = MOST_BODY_BYTES
        app.config["BODY_TIMEOUT"] = BODY_SECONDS

        async def check_request() -> Response | None:
            if not self.address.is_called(request.host):
                return _line("the Host header does not name this proxy", HTTPStatus.FORBIDDEN)
            if self._token is not None and not self._token.admits(request.headers.get("Authorization", "")):
                refusal = _line("the proxy needs the token of its --http-token-file", HTTPStatus.UNAUTHORIZED)
                refusal.headers["WWW-Authenticate"] = CHALLENGE
                return refusal
            if request.method == "POST" and not request.is_json:
                return _line("the body must be application/json", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            return None

        async def add_headers(response: Response) -> Response:
            response.headers.update(_HEADERS)
            return response

        async def one_line(error: HTTPException) -> Response:
            return _line(str(error.description or error.name), HTTPStatus(error.code or 500))

        async def refused(error: ClusterError) -> Response:
            return _line(str(error), HTTPStatus.BAD_REQUEST)

        app.before_request(check_request)
        app.after_request(add_headers)
        app.register_error_handler(HTTPException, one_line)
        app.register_error_handler(ClusterError, refused)
        app.add_url_rule("/", "index", self._index)
        app.add_url_rule("/rules", "rules", self._rules)
        app.add_url_rule("/rules", "add", self._add, methods=["POST"])
        app.add_url_rule("/rules", "clear", self._clear, methods=["DELETE"])
        app.add_url_rule("/rules/<int:number>", "remove", self._remove, methods=["DELETE"])
        app.add_url_rule("/links", "break", self._break, methods=["POST"])
        app.add_url_rule("/links", "heal", self._heal, methods=["DELETE"])
        app.add_url_rule("/brokers", "brokers", self._brokers)
        app.add_url_rule("/trace", "trace", self._trace)
        return app

    # ---- rules and links

    async def _rules(self) -> Response:
        return _json([rule_json(rule) for rule in self._proxy.common.rules.rules])

    async def _add(self) -> Response:
        """A rule, as an object or as a line, or a list of them."""
        body = await request.get_json()
        wanted = [rule_of(each, "rule") for each in (body if isinstance(body, list) else [body])]
        added = [self._proxy.common.rules.add(each) for each in wanted]
        written = [rule_json(each) for each in added]
        return _json(written if isinstance(body, list) else written[0], HTTPStatus.CREATED)

    async def _remove(self, number: int) -> Response:
        rule = self._proxy.common.rules.remove(number)
        if rule is None:
            known = ", ".join(str(each.number) for each in self._proxy.common.rules.rules) or "none"
            return _line(f"rules are {known}; got {number}", HTTPStatus.NOT_FOUND)
        return _json(rule_json(rule))

    async def _clear(self) -> Response:
        self._proxy.common.rules.clear()
        return _json([])

    async def _break(self) -> Response:
        """A fault of links, as an object or as a line."""
        link = link_of(await request.get_json(), "link")
        self._proxy.set_link(link.state, link.broker, link.direction)
        return _json(link.model_dump(), HTTPStatus.CREATED)

    async def _heal(self) -> Response:
        self._proxy.heal()
        return _json([])

    # ---- views

    async def _brokers(self) -> Response:
        return _json(self._proxy.brokers())

    async def _trace(self) -> Response:
        last = request.args.get("last", str(NEWEST))
        if not (last.isascii() and last.isdigit() and int(last) <= NEWEST):
            raise WrongArgument(f"last must be a number up to {NEWEST}; got {last!r}")
        newest = list(self._recorder.newest or ())
        return _json(newest[len(newest) - int(last) :] if int(last) < len(newest) else newest)

    async def _index(self) -> Response:
        rules = [
            (str(each.number), each.text, str(each.matched), str(each.struck))
            for each in self._proxy.common.rules.rules
        ]
        brokers = [(str(each["node_id"]), each["broker"], str(each["port"])) for each in self._proxy.brokers()]
        newest = [
            (
                str(each["connection"]),
                str(each["client"]),
                each["direction"],
                f"{each['api']} v{each['version']}",
                ", ".join(each.get("errors", ())),
                str(each.get("rule", "")),
            )
            for each in list(self._recorder.newest or ())[-ROWS:]
        ]
        parts = [
            "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>"
            "<title>barnabas proxy</title><style>body{font:14px system-ui;margin:2em}td,th{padding:.1em 1em .1em 0;"
            "text-align:left}</style>",
            f"<h1>Proxy before {html.escape(', '.join(sorted(self._proxy.targets)))}</h1>",
            f"<p>{len(self._proxy.connected)} connections",
            _table("Rules", ("number", "rule", "matched", "struck"), rules),
            _table("Brokers", ("id", "address", "port here"), brokers),
            _table("Newest messages", ("connection", "client", "direction", "API", "errors", "rule"), newest[::-1]),
        ]
        return Response("".join(parts), content_type="text/html; charset=utf-8")


def rule_json(rule: Rule) -> dict[str, Any]:
    return {
        "number": rule.number,
        "rule": rule.text,
        "matched": rule.matched,
        "struck": rule.struck,
        **rule.fault.model_dump(exclude_defaults=True),
    }


def _table(title: str, heads: tuple[str, ...], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th scope=col>{each}</th>" for each in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(visible_lines(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<h2>{title}</h2><table><tr>{head}</tr>{body}</table>"


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(value, indent=1) + "\n", status, content_type="application/json")


def _line(text: str, status: HTTPStatus) -> Response:
    return Response(f"{visible_lines(text)}\n", status, content_type="text/plain; charset=utf-8")
