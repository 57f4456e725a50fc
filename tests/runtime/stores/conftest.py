"""One S3 server for all tests of a process; each test has a prefix of its own in its bucket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.s3_servers import S3Server, create_bucket, moto_server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = moto_server(tmp_path_factory.mktemp("moto"))
    server.start()
    try:
        create_bucket(server)
        yield server
    finally:
        server.kill()
