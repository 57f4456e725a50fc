"""A key distribution centre of MIT Kerberos for tests: in a directory of its own, on a free port of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REALM = "EXAMPLE.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing() -> str | None:
    """Names what this machine lacks; None: nothing."""
    lacks = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    if lacks:
        return f"no {', '.join(lacks)} (Debian: krb5-kdc krb5-admin-server krb5-user)"
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError) as error:
        return f"no python-gssapi ({error}); it needs libkrb5-dev"
    return None


@dataclass(frozen=True)
class Kdc:
    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables of programs that use this centre."""
        return {
            "KRB5_CONFIG": str(self.directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.directory / 'tickets'}",
            "KRB5RCACHENAME": f"file2:{self.directory / 'replays'}",
        }

    def run(self, *command: str, entered: str = "") -> str:
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment, "PATH": _PATH},
            input=entered,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def add(self, principal: str) -> Path:
        """Add a principal with random keys; returns its keytab."""
        keytab = self.directory / (principal.replace("/", "_") + ".keytab")
        self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-q", f"ktadd -k {keytab} {principal}")
        return keytab

    def log_in(self, principal: str, keytab: Path) -> None:
        """Get a ticket into the cache, as a user of `kinit`."""
        self.run("kinit", "-k", "-t", str(keytab), principal)


@contextmanager
def running_kdc(directory: Path) -> Iterator[Kdc]:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    (directory / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        f" dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
    )
    (directory / "kdc.conf").write_text(
        f'[kdcdefaults]\n kdc_listen = ""\n kdc_tcp_listen = 127.0.0.1:{port}\n'
        f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n  key_stash_file = {directory}/stash\n"
        f"  acl_file = {directory}/kadm5.acl\n }}\n[logging]\n kdc = FILE:{directory}/kdc.log\n"
    )
    kdc = Kdc(directory)
    kdc.run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
    environment = {**os.environ, **kdc.environment, "PATH": _PATH}
    process = subprocess.Popen(
        ["krb5kdc", "-n"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "starting" in line, line
        yield kdc
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
