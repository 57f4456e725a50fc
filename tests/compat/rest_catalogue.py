"""Iceberg's own REST catalogue as a process, and a network that loses its answers."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, free_port

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".cache" / "iceberg-rest"
MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


def rest_catalogue(directory: Path, store: S3Server) -> S3Server:
    """The catalogue, with its tables in SQLite and their files in the bucket of `store`. It survives a kill."""
    port = free_port()
    properties = {
        "uri": f"jdbc:sqlite:{directory}/catalogue.db",
        "warehouse": f"s3://{BUCKET}/lake",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": store.url,
        "s3.path-style-access": "true",
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
        "jdbc.schema-version": "V1",
    }
    environment = {f"CATALOG_{_as_variable(name)}": value for name, value in properties.items()}
    environment |= {"CATALOG_REST_PORT": str(port), "REST_PORT": str(port), "AWS_REGION": "us-east-1"}
    flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    command = ["java", *flags, "-cp", f"{JARS}{os.sep}*", MAIN]
    return S3Server(command, port, directory / "catalogue.log", environment, keeps_files=True)


def _as_variable(name: str) -> str:
    return name.replace("-", "__").replace(".", "_").upper()


@dataclass
class LossyNetwork:
    """Passes on what clients send to a port. Some answers to a POST are lost: the connection ends instead."""

    port: int
    seed: int = 1
    loss: float = 0.3
    lost: int = 0
    _listener: socket.socket = field(init=False)
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> LossyNetwork:
        self._chance = random.Random(self.seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while not self._ends.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        except OSError:
            client.close()
            return
        posts = threading.Event()
        """The last request was a POST."""

        def requests() -> None:
            with suppress(OSError):
                while data := client.recv(65_536):
                    if data.startswith((b"POST ", b"GET ", b"HEAD ", b"DELETE ")):
                        (posts.set if data.startswith(b"POST ") else posts.clear)()
                    server.sendall(data)
            with suppress(OSError):
                server.shutdown(socket.SHUT_WR)

        threading.Thread(target=requests, daemon=True).start()
        with suppress(OSError):
            while data := server.recv(65_536):
                if posts.is_set() and self._chance.random() < self.loss:
                    self.lost += 1
                    break
                client.sendall(data)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def processes_end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()
