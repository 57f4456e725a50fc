"""The S3 server of a cluster on this machine (`cluster up --s3`): versitygw, with plain files below the data directory.

    DATA/s3/files/segments      the bucket
    DATA/s3/keys.json           its credentials, made once
    DATA/logs/s3.log, DATA/run/s3.pid

Started before the brokers and stopped after them. It is never restarted by itself: brokers wait for it.
"""

from __future__ import annotations

import http.client
import json
import secrets
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.cluster.layout import Layout, Node
from barnabas.cluster.ports import is_free
from barnabas.cluster.private_files import write_private
from barnabas.cluster.processes import ProcessId
from barnabas.settings.object_store import STORE_ACCESS_KEY, STORE_ENDPOINT, STORE_SECRET_KEY, STORE_URL

PROGRAM = "versitygw"
BUCKET = "segments"
PORT_ABOVE = 90
"""The port of the server, above the base port."""
_BUILT = Path(".cache") / "versitygw" / PROGRAM
"""Where `make versitygw` puts it, below the checkout."""
_READY_SECONDS = 30.0
_STOP_SECONDS = 10.0


def find_program() -> str:
    """The path of versitygw. Raises `WrongArgument` where there is none."""
    built = Path(__file__).resolve().parents[2] / _BUILT
    found = shutil.which(PROGRAM) or (str(built) if built.exists() else None)
    if found is None:
        raise WrongArgument(
            "--s3 needs the S3 server versitygw on the PATH; in a checkout, `make versitygw` builds it with Go; or use"
            f" a directory: --set remote.log.storage.system.enable=true --set {STORE_URL}=file:///some/directory"
        )
    return found


@dataclass(frozen=True, slots=True)
class LocalStore:
    """The server of one cluster."""

    layout: Layout

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when the server answers; does nothing if it runs."""
        process = ProcessId.read(self._pid_file)
        if process is not None and process.alive:
            return
        program = find_program()
        if not is_free(self._port):
            raise ClusterError(f"port {self._port}, which the S3 server needs, is taken by another process")
        files = self._directory / "files"
        (files / BUCKET).mkdir(parents=True, exist_ok=True)
        log = self.layout.data / "logs" / "s3.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        access_key, secret_key = self._keys()
        with log.open("ab") as output:
            started = subprocess.Popen(
                [program, "--quiet", "--port", f"127.0.0.1:{self._port}", "posix", str(files)],
                env={"ROOT_ACCESS_KEY": access_key, "ROOT_SECRET_KEY": secret_key},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        process = ProcessId.of(started.pid)
        if process is not None:
            process.write(self._pid_file)
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers():
            if started.poll() is not None or time.monotonic() > deadline:
                lines = log.read_text(errors="replace").strip().splitlines()
                raise ClusterError(f"the S3 server does not answer: {lines[-1] if lines else 'its log is empty'}")
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that does not help; does nothing if it does not run."""
        process = ProcessId.read(self._pid_file)
        if process is not None and process.alive:
            process.send(signal.SIGTERM)
            if not process.wait_gone(_STOP_SECONDS):
                process.send(signal.SIGKILL)
                process.wait_gone(_STOP_SECONDS)
        self._pid_file.unlink(missing_ok=True)

    def settings_of(self, node: Node) -> dict[str, str]:
        """The settings of tiered storage for a node."""
        values = {"remote.log.storage.system.enable": "true"}
        if node.is_broker:
            access_key, secret_key = self._keys()
            values[STORE_URL] = f"s3://{BUCKET}"
            values[STORE_ENDPOINT] = self.endpoint
            values[STORE_ACCESS_KEY], values[STORE_SECRET_KEY] = access_key, secret_key
        return values

    @property
    def _port(self) -> int:
        return self.layout.base_port + PORT_ABOVE

    @property
    def _directory(self) -> Path:
        return self.layout.data / "s3"

    @property
    def _pid_file(self) -> Path:
        return self.layout.data / "run" / "s3.pid"

    def _keys(self) -> tuple[str, str]:
        """Access key and secret key, the same for the life of the cluster."""
        path = self._directory / "keys.json"
        if not path.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            made = {"access_key": secrets.token_hex(10), "secret_key": secrets.token_urlsafe(30)}
            write_private(path, json.dumps(made) + "\n")
        kept = json.loads(path.read_text())
        return kept["access_key"], kept["secret_key"]

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()
        return True
