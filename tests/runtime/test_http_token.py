"""Pages that need a token: what a file may hold, who is admitted, and the answers over a real listener."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cluster.node_page import NoAnswer, NodePage
from barnabas.runtime.http import HttpRequest, HttpResponse, HttpServer
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.observatory import Observatory, read_token
from barnabas.runtime.real import real_world
from barnabas.settings.errors import SettingsError

SECRET = "correct-horse-battery"
TOKEN = HttpToken(SECRET)


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "authorization",
    [f"Bearer {SECRET}", f"bearer  {SECRET}", basic(f"prometheus:{SECRET}"), basic(f":{SECRET}"), TOKEN.authorization],
)
def test_the_token_is_admitted_as_bearer_and_as_password(authorization: str) -> None:
    assert TOKEN.admits(authorization)


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        f"Bearer {SECRET}x",
        f"Bearer {SECRET[:-1]}",
        f"Digest {SECRET}",
        SECRET,
        basic(SECRET),
        basic(f"{SECRET}:"),
        "Basic %%%",
        "Bearer \u00e9\u00ff",
    ],
)
def test_anything_else_is_not(authorization: str) -> None:
    assert not TOKEN.admits(authorization)


@given(st.binary(max_size=60))
def test_no_bytes_of_a_header_break_the_check(sent: bytes) -> None:
    for scheme in ("", "Basic ", "Bearer "):
        assert not TOKEN.admits(scheme + sent.decode("latin-1"))


def test_the_first_line_of_a_file_is_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(SECRET.encode() + b"\r\nanything\n")
    assert read_token(real_world(), str(file)) == TOKEN
    assert SECRET not in repr(TOKEN)
    assert read_token(real_world(), None) is None


@pytest.mark.parametrize(
    "contents", [b"", b"\n" + SECRET.encode(), b"too-short", b"with a space, so no token", b"x" * 513]
)
def test_a_file_without_a_token_is_refused_without_its_contents(tmp_path: Path, contents: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(contents)
    with pytest.raises(SettingsError) as refused:
        read_token(real_world(), str(file))
    text = str(refused.value)
    assert text.startswith(f"barnabas.http.token.file={file}"[:40]) and "16 to 512 characters" in text
    assert not contents.strip() or contents.decode() not in text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_token(real_world(), str(tmp_path / "none"))


async def ask(port: int, path: str, authorization: str = "") -> tuple[str, dict[str, str], str]:
    """First line, headers and body of a response."""
    header = f"Authorization: {authorization}\r\n" if authorization else ""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\n{header}Connection: close\r\n\r\n".encode())
        received = b""
        async for piece in stream:
            received += piece
    head, _, body = received.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), body


@pytest.mark.feature("OB-06")
async def test_probes_need_no_token_and_all_else_does(nursery: trio.Nursery) -> None:
    """Monitoring sends its token; a stranger learns only that the node lives and whether it is ready."""
    observatory = Observatory(lambda: "logs of topic secret-plans are being loaded", TOKEN)

    async def state(request: HttpRequest) -> HttpResponse:
        return HttpResponse(b'{"role": "broker"}', "application/json")

    observatory.pages["/state"] = state
    world = real_world()
    listener = await world.network.listen("127.0.0.1", 0)
    nursery.start_soon(HttpServer(world, observatory.handle).serve, listener)
    port = listener.port

    for path in ("/state", "/", "/nothing", "/healthz/"):
        for wrong in ("", "Bearer wrong-horse-battery", basic("admin:admin")):
            first, headers, body = await ask(port, path, wrong)
            assert first == "HTTP/1.1 401 Unauthorized"
            assert headers["WWW-Authenticate"].startswith('Basic realm="barnabas"')
            assert body == "this page needs the token in the file of barnabas.http.token.file\n"
    assert (await ask(port, "/healthz"))[2] == "ok\n"
    first, _, body = await ask(port, "/readyz")
    assert (first, body) == ("HTTP/1.1 503 Service Unavailable", "not ready\n")
    assert "secret-plans" in (await ask(port, "/readyz", TOKEN.authorization))[2]
    assert (await ask(port, "/state", basic(f"grafana:{SECRET}")))[2] == '{"role": "broker"}'

    # The tools of ours send it with each question.
    mine = NodePage(world.network, "127.0.0.1", port, TOKEN)
    assert await mine.get("/state") == await mine.another().get("/state") == {"role": "broker"}
    mine.close()
    with pytest.raises(NoAnswer, match=r"wants a token \(--http-token-file\)"):
        await NodePage(world.network, "127.0.0.1", port).get("/state")
    with pytest.raises(NoAnswer, match="has another token"):
        await NodePage(world.network, "127.0.0.1", port, HttpToken("x" * 20)).get("/state")
