"""A power cut for one file system: what was not synced is gone, as the kernel's own journal decides.

EXT4_IOC_SHUTDOWN without a flush of the log makes an ext4 file system refuse everything from now on, and write nothing
more. When it is unmounted and mounted again, it is what it would be after the power had failed. Needs root, and a file
system of its own for each node: a file that is mounted by a loop device.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

from barnabas.cluster.errors import ClusterError

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
SIZE_BYTES = 8 << 30
"""Size of the file system of a node; its file is sparse."""
_STEP_SECONDS = 30.0


def cut_power(directory: str) -> None:
    """The file system of `directory` is off now. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
    finally:
        os.close(descriptor)


class Volume:
    """A file with a file system in it, and where it is mounted."""

    def __init__(self, image: Path, directory: Path) -> None:
        self.image = image
        self.directory = directory

    def make(self) -> None:
        """A new one, mounted. Raises ClusterError."""
        self.image.parent.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        # Inodes are not initialised later: that would keep threads of the kernel busy on all these file systems.
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-N", "65536", "-O", "^resize_inode", "-E",
             "lazy_itable_init=1,nodiscard", "-J", "size=16", str(self.image))  # fmt: skip
        self.mount()

    def mount(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        _run("mount", "-o", "loop,noinit_itable,noatime", str(self.image), str(self.directory))

    def unmount(self) -> None:
        _run("umount", str(self.directory))

    def come_back(self) -> None:
        """After a power cut, and after all that had files open has ended."""
        self.unmount()
        self.mount()

    @property
    def is_off(self) -> bool:
        """Its power is cut."""
        try:
            os.listdir(self.directory)
            with open(self.directory / ".power", "w", encoding="ascii"):
                pass
            os.unlink(self.directory / ".power")
        except OSError:
            return True
        return False


def reason_against(directory: Path) -> str | None:
    """Reason why no power can be cut on this machine; tries it."""
    if os.geteuid() != 0:
        return "a power cut needs root (a file system of its own for each node)"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"a power cut needs {tool}, which is not here"
    volume = Volume(directory / "try.ext4", directory / "try")
    try:
        volume.make()
    except ClusterError as error:
        return f"no file system can be mounted here: {error}"
    try:
        cut_power(str(volume.directory))
    except OSError as error:
        return f"this kernel cuts no power of a file system: {error.strerror}"
    finally:
        volume.unmount()
        volume.image.unlink()
        volume.directory.rmdir()
    return None


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_STEP_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{command[0]}: {error}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ClusterError(f"{command[0]}: {lines[-1] if lines else done.returncode}")
