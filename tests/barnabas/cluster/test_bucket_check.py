"""`barnabas storage check-bucket`: stores that keep all promises, and stores that break one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli import main
from barnabas.cluster.bucket_check import Finding, check_bucket
from barnabas.runtime.object_store import ObjectStore
from barnabas.runtime.simulated import Universe, run_simulation
from barnabas.runtime.simulated.object_store import Bucket, FaultKind
from barnabas.runtime.world import World
from barnabas.settings.object_store import StoreSettings
from tests.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, create_bucket, moto_server

pytestmark = pytest.mark.feature("TS-03")


@pytest.fixture
def moto(tmp_path: Path) -> Iterator[S3Server]:
    server = moto_server(tmp_path)
    server.start()
    try:
        create_bucket(server)
        yield server
    finally:
        server.kill()


Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; gives its exit code and the lines that it printed."""

    def check(*words: str) -> tuple[int, list[str]]:
        code = main.run(["storage", "check-bucket", *words])
        printed = capsys.readouterr()
        return code, (printed.out + printed.err).splitlines()

    return check


def test_a_directory_keeps_all_promises(run: Run, tmp_path: Path) -> None:
    code, lines = run(f"file://{tmp_path}")
    assert code == 0, lines
    assert [line.partition(":")[0] for line in lines] == [
        "ok    put, verified by checksum",
        "ok    get, whole and ranged",
        "ok    size",
        "ok    overwrite, read after write",
        "ok    list after write",
        "ok    multipart upload",
        "ok    create-only put",
        "ok    create-only put, 8 writers at once",
        "ok    delete, list after delete",
        "ok    wrong credentials are refused",
        "ok    removal of what was written",
    ]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_s3_server_keeps_all_promises(run: Run, moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    code, lines = run(f"s3://{BUCKET}/check", "--endpoint", moto.url)
    assert code == 0, lines
    assert len(lines) == 11 and sum(line.startswith("ok ") for line in lines) == 10
    assert "note  wrong credentials are refused: the store takes any credentials" in lines


def test_the_file_of_a_broker_names_the_store(run: Run, moto: S3Server, tmp_path: Path) -> None:
    file = tmp_path / "broker-1.properties"
    file.write_text(
        f"barnabas.remote.store.url=s3://no-such-bucket\nbarnabas.remote.store.endpoint={moto.url}\n"
        f"barnabas.remote.store.access.key={ACCESS_KEY}\nbarnabas.remote.store.secret.key={SECRET_KEY}\n"
        "barnabas.remote.store.retries=0\n"
    )
    code, [line] = run("--config", str(file))
    assert code == 1
    assert line.startswith("FAIL  put, verified by checksum: put barnabas-check-") and "NoSuchBucket" in line
    code, lines = run(f"s3://{BUCKET}", "--config", str(file))
    assert code == 0, lines


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "name a store: URL, or --config with a file that sets barnabas.remote.store.url"),
        (["ftp://x"], "barnabas.remote.store.url=ftp://x: not the URL of a store; allowed: file:///path or s3://"),
        (["s3://bucket", "--endpoint", "x"], "barnabas.remote.store.endpoint=x: not the address of an S3 server"),
        (["--config", "/no/such/file"], "/no/such/file"),
    ],
)
def test_wrong_words_are_one_line(run: Run, words: list[str], text: str) -> None:
    code, [line] = run(*words)
    assert code == 2 and text in line


def test_a_directory_that_is_missing_has_one_line(run: Run, tmp_path: Path) -> None:
    code, [line] = run(f"file://{tmp_path}/missing")
    assert code == 1 and line.endswith("missing is not a directory: create or mount it")


def failures(break_it: Callable[[Universe], None]) -> dict[str, str]:
    """Property to text of what fails on a simulated store that is broken."""
    found: list[Finding] = []

    async def story(universe: Universe) -> None:
        break_it(universe)

        async def node(world: World) -> None:
            def open_store(settings: StoreSettings) -> ObjectStore:
                assert world.object_store is not None
                return world.object_store(settings)

            async for finding in check_bucket(StoreSettings("s3://bucket"), open_store, world.chance):
                found.append(finding)

        await universe.run_node("broker-1", node)

    run_simulation(3, story)
    return {each.property: each.text for each in found if each.verdict == "FAIL"}


def test_lists_that_are_behind_are_found() -> None:
    def behind(universe: Universe) -> None:
        universe.bucket("s3://bucket").list_lag_ms = 60_000.0

    assert failures(behind) == {"list after write": "0 of 10 objects"}


def test_a_store_that_is_away_has_one_finding() -> None:
    def away(universe: Universe) -> None:
        universe.bucket("s3://bucket").fail(FaultKind.UNAVAILABLE)

    [(name, text)] = failures(away).items()
    assert name == "put, verified by checksum" and text.endswith("503 Service Unavailable")


def test_puts_that_replace_although_they_must_not_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Bucket.put

    def forgetful(bucket: Bucket, key: str, data: bytes, *, if_absent: bool) -> None:
        put(bucket, key, data, if_absent=False)

    monkeypatch.setattr(Bucket, "put", forgetful)
    found = failures(lambda _universe: None)
    assert found == {
        "create-only put": "the second put has replaced the first",
        "create-only put, 8 writers at once": "8 writers won race 1 of 20",
    }
