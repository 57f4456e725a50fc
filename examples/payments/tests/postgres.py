"""A PostgreSQL server for one test run, in a directory of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

USER = "postgres"


def programs() -> Path | None:
    """The directory of the newest initdb and pg_ctl; None if there are none. Debian keeps them out of PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = debian[-1] if debian else shutil.which("initdb")
    return Path(found).parent if found else None


class Postgres:
    """Listens on a free port of the loopback. It refuses to run as root, and then runs as the user `postgres`."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._as_user: dict[str, object] = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam(USER)
            self._as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        folder.mkdir(mode=0o700)
        if self._as_user:
            os.chown(folder, account.pw_uid, account.pw_gid)
        self._folder = folder
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", USER, "--no-sync")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        self._run("pg_ctl", "-D", str(self._data), "-o", options, "-l", str(folder / "log"), "-w", "start")
        self.dsn = f"host=127.0.0.1 port={port} user={USER} dbname=postgres"

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *words: str) -> None:
        found = programs()
        assert found is not None
        # The server keeps what it inherits: its output goes to a file, or reading it would never end.
        with open(self._folder.parent / "postgres.out", "a+b") as output:
            words = (str(found / program), *words)
            to_file = {"stdout": output, "stderr": subprocess.STDOUT}
            done = subprocess.run(words, cwd="/", check=False, **to_file, **self._as_user)
            output.seek(0)
            assert done.returncode == 0, output.read().decode()
