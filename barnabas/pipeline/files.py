"""Small state files of a job, on this machine or on any file system that the Spark session reaches.

Writes are atomic: to a temporary file, then a rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from barnabas.pipeline.errors import PipelineError


class Files(Protocol):
    """Operations on full paths. PipelineError for errors of the file system."""

    def read(self, path: str) -> str | None:
        """The content, or None if the file does not exist."""

    def write(self, path: str, text: str) -> None:
        """Replace the file atomically, also for concurrent readers. Creates the directory."""

    def exists(self, path: str) -> bool: ...

    def is_file(self, path: str) -> bool: ...

    def below(self, path: str) -> list[str]:
        """All files below a directory, as sorted relative paths; empty if the directory does not exist."""

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory; empty if it does not exist."""

    def move(self, source: str, target: str) -> None:
        """Rename. Creates the directory of the target."""

    def remove(self, path: str) -> None:
        """Remove a file or a directory tree, if it exists."""

    def only_one(self, folder: str) -> contextlib.AbstractContextManager[None]:
        """Lock the directory for the block, if the file system has locks. PipelineError if it is locked."""


class LocalFiles:
    """The file system of this machine."""

    def read(self, path: str) -> str | None:
        with _os_errors_in_one_line(path):
            try:
                return Path(path).read_text()
            except (FileNotFoundError, NotADirectoryError):
                return None
            except UnicodeDecodeError:
                raise PipelineError(f"{path} is not UTF-8 text; give another --checkpoint") from None

    def write(self, path: str, text: str) -> None:
        with _os_errors_in_one_line(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            aside = f"{path}.new"
            try:
                with open(aside, "w") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(aside, path)
            except OSError:
                Path(aside).unlink(missing_ok=True)
                raise

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def below(self, path: str) -> list[str]:
        found = Path(path).rglob("*")
        return sorted(str(each.relative_to(path)) for each in found if each.is_file())

    def names(self, path: str) -> list[str]:
        with _os_errors_in_one_line(path):
            try:
                return sorted(os.listdir(path))
            except FileNotFoundError:
                return []

    def move(self, source: str, target: str) -> None:
        with _os_errors_in_one_line(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(source, target)

    def remove(self, path: str) -> None:
        with _os_errors_in_one_line(path):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                Path(path).unlink(missing_ok=True)

    @contextlib.contextmanager
    def only_one(self, folder: str) -> Iterator[None]:
        with _os_errors_in_one_line(folder):
            os.makedirs(folder, exist_ok=True)
            file = open(os.path.join(folder, "lock"), "w")  # noqa: SIM115 - it is closed below
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(f"{folder} is in use by another job; wait until it ends") from None
            yield


class SessionFiles:
    """File systems of Hadoop, with the settings of the Spark session."""

    def __init__(self, session: Any) -> None:
        self._jvm = session._jvm
        self._gateway = session.sparkContext._gateway
        self._settings = session._jsc.hadoopConfiguration()

    def read(self, path: str) -> str | None:
        with _hadoop_errors_in_one_line(path):
            system, place = self._at(path)
            if not system.exists(place):
                return None
            stream = system.open(place)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, path: str, text: str) -> None:
        with _hadoop_errors_in_one_line(path):
            system, place = self._at(path)
            aside = self._jvm.org.apache.hadoop.fs.Path(f"{path}.new")
            system.mkdirs(place.getParent())
            stream = system.create(aside, True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
            rename = self._jvm.org.apache.hadoop.fs.Options.Rename
            over = self._gateway.new_array(rename, 1)
            over[0] = rename.OVERWRITE
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(system.getUri(), self._settings)
            context.rename(system.makeQualified(aside), system.makeQualified(place), over)

    def exists(self, path: str) -> bool:
        with _hadoop_errors_in_one_line(path):
            system, place = self._at(path)
            return bool(system.exists(place))

    def is_file(self, path: str) -> bool:
        with _hadoop_errors_in_one_line(path):
            system, place = self._at(path)
            return bool(system.exists(place)) and bool(system.getFileStatus(place).isFile())

    def below(self, path: str) -> list[str]:
        with _hadoop_errors_in_one_line(path):
            system, place = self._at(path)
            if not system.exists(place):
                return []
            root = system.makeQualified(place).toString().rstrip("/") + "/"
            found, names = system.listFiles(place, True), []
            while found.hasNext():
                names.append(found.next().getPath().toString().removeprefix(root))
            return sorted(names)

    def names(self, path: str) -> list[str]:
        with _hadoop_errors_in_one_line(path):
            system, place = self._at(path)
            if not system.exists(place):
                return []
            return sorted(each.getPath().getName() for each in system.listStatus(place))

    def move(self, source: str, target: str) -> None:
        with _hadoop_errors_in_one_line(target):
            system, place = self._at(target)
            system.mkdirs(place.getParent())
            if not system.rename(self._at(source)[1], place):
                raise PipelineError(f"{source} could not be renamed to {target}; does the target exist already?")

    def remove(self, path: str) -> None:
        with _hadoop_errors_in_one_line(path):
            system, place = self._at(path)
            system.delete(place, True)

    @contextlib.contextmanager
    def only_one(self, folder: str) -> Iterator[None]:
        # These file systems have no locks that end with their holder.
        yield

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._settings), place


def files_for(session: Any, path: str) -> tuple[Files, str]:
    """The file system of `path`, and its full path there. The session decides where a path without scheme is."""
    if session is None:
        return LocalFiles(), local_path(path)
    with _hadoop_errors_in_one_line(path):
        place = session._jvm.org.apache.hadoop.fs.Path(path)
        system = place.getFileSystem(session._jsc.hadoopConfiguration())
    if system.getUri().getScheme() == "file":
        return LocalFiles(), local_path(path)
    return SessionFiles(session), system.makeQualified(place).toString().rstrip("/")


def is_remote(path: str) -> bool:
    """Whether the path needs a Spark session."""
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme != "file"


def local_path(path: str) -> str:
    """The full path of `file:/x`, `file:///x` or `x`."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return os.path.abspath(path)


@contextlib.contextmanager
def _os_errors_in_one_line(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        more = "; free some space and run the same command again, it resumes" if error.errno == errno.ENOSPC else ""
        raise PipelineError(f"{error.filename or path}: {what}{more}") from None


@contextlib.contextmanager
def _hadoop_errors_in_one_line(path: str) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        reason = " ".join(str(error.java_exception.getMessage()).split())
        raise PipelineError(f"{path}: {reason}") from None
