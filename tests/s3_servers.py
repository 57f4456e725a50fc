"""S3 servers as processes of their own, on loopback, ended by the test that started them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.settings.object_store import StoreSettings

ROOT = Path(__file__).resolve().parent.parent
VERSITYGW = ROOT / ".cache" / "versitygw" / "versitygw"
BUCKET = "segments"
ACCESS_KEY, SECRET_KEY = "reader-of-tests", "kept-for-tests-only"


@dataclass(slots=True)
class S3Server:
    """A server, running or not. It keeps its port when it starts again."""

    command: list[str]
    port: int
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    keeps_files: bool = False
    """Objects survive its end."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, timeout_seconds: float = 60.0) -> None:
        """Returns when the server answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env={**os.environ, **self.environment}
            )
        deadline = time.monotonic() + timeout_seconds
        while not self._answers():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"no answer of {self.command[0]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """The server keeps its port, and answers nothing until `resume`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def settings(self, prefix: str = "", **others: object) -> StoreSettings:
        """The store below a prefix of the bucket."""
        fields: dict[str, object] = {
            "url": f"s3://{BUCKET}/{prefix}",
            "endpoint": self.url,
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            "timeout_ms": 10_000,
        }
        return StoreSettings(**(fields | others))  # type: ignore[arg-type]

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url, timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def _end(self, with_signal: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(with_signal)
            self.process.send_signal(signal.SIGCONT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        self.process = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def moto_server(directory: Path) -> S3Server:
    """moto: in memory, starts in seconds, checks no credentials unless it is asked to."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    # It looks for credentials of its own, and finds them here rather than on the network.
    environment = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    return S3Server(command, port, directory / "moto.log", environment)


def create_bucket(server: S3Server) -> None:
    """Make the bucket on moto, which asks for no signature."""
    request = urllib.request.Request(f"{server.url}/{BUCKET}", method="PUT", data=b"")
    request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request")
    urllib.request.urlopen(request, timeout=10).close()


def versity_server(directory: Path) -> S3Server | None:
    """versitygw: plain files below a directory that survive it; None if it is not built (`make versitygw`)."""
    program = shutil.which("versitygw") or (str(VERSITYGW) if VERSITYGW.exists() else None)
    if program is None:
        return None
    files = directory / "files"
    (files / BUCKET).mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [program, "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(files)]
    environment = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    return S3Server(command, port, directory / "versitygw.log", environment, keeps_files=True)
