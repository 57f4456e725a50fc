"""Small files of a job's own, where its data is: on this machine, or wherever the Spark session reaches.

Writing is whole or not at all: to the side, then a rename. Knows nothing of what stands in the files.
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
    """Paths are full. PipelineError says in one line what a file system refuses."""

    def read(self, path: str) -> str | None:
        """What stands there; None if there is nothing."""

    def write(self, path: str, text: str) -> None:
        """Whole or not at all, also for who looks at the same time; its folder is made."""

    def exists(self, path: str) -> bool: ...

    def is_file(self, path: str) -> bool: ...

    def below(self, path: str) -> list[str]:
        """All files in a folder and its folders, relative to it, in order; none if it is not there."""

    def names(self, path: str) -> list[str]:
        """What is in a folder, in order; none if it is not there."""

    def move(self, source: str, target: str) -> None:
        """A rename; the folder of the target is made."""

    def remove(self, path: str) -> None:
        """A file, or a folder with all that is in it; it may be gone already."""

    def only_one(self, folder: str) -> contextlib.AbstractContextManager[None]:
        """Nobody else is in such a block on the same folder, as far as the file system can tell."""


class LocalFiles:
    """On this machine."""

    def read(self, path: str) -> str | None:
        with _told(path):
            try:
                return Path(path).read_text()
            except (FileNotFoundError, NotADirectoryError):
                return None
            except UnicodeDecodeError:
                raise PipelineError(f"{path} is not a text of ours: give another --checkpoint") from None

    def write(self, path: str, text: str) -> None:
        with _told(path):
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
        with _told(path):
            try:
                return sorted(os.listdir(path))
            except FileNotFoundError:
                return []

    def move(self, source: str, target: str) -> None:
        with _told(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(source, target)

    def remove(self, path: str) -> None:
        with _told(path):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                Path(path).unlink(missing_ok=True)

    @contextlib.contextmanager
    def only_one(self, folder: str) -> Iterator[None]:
        with _told(folder):
            os.makedirs(folder, exist_ok=True)
            file = open(os.path.join(folder, "lock"), "w")  # noqa: SIM115 - it is closed below
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(f"{folder}: another job works with it; wait for its end") from None
            yield


class SessionFiles:
    """Wherever the Spark session reaches: by the file systems of Hadoop, with the session's own settings."""

    def __init__(self, session: Any) -> None:
        self._jvm = session._jvm
        self._gateway = session.sparkContext._gateway
        self._settings = session._jsc.hadoopConfiguration()

    def read(self, path: str) -> str | None:
        with _refused(path):
            system, place = self._at(path)
            if not system.exists(place):
                return None
            stream = system.open(place)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, path: str, text: str) -> None:
        with _refused(path):
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
        with _refused(path):
            system, place = self._at(path)
            return bool(system.exists(place))

    def is_file(self, path: str) -> bool:
        with _refused(path):
            system, place = self._at(path)
            return bool(system.exists(place)) and bool(system.getFileStatus(place).isFile())

    def below(self, path: str) -> list[str]:
        with _refused(path):
            system, place = self._at(path)
            if not system.exists(place):
                return []
            root = system.makeQualified(place).toString().rstrip("/") + "/"
            found, names = system.listFiles(place, True), []
            while found.hasNext():
                names.append(found.next().getPath().toString().removeprefix(root))
            return sorted(names)

    def names(self, path: str) -> list[str]:
        with _refused(path):
            system, place = self._at(path)
            if not system.exists(place):
                return []
            return sorted(each.getPath().getName() for each in system.listStatus(place))

    def move(self, source: str, target: str) -> None:
        with _refused(target):
            system, place = self._at(target)
            system.mkdirs(place.getParent())
            if not system.rename(self._at(source)[1], place):
                raise PipelineError(f"{source} could not be renamed to {target}: is it there already?")

    def remove(self, path: str) -> None:
        with _refused(path):
            system, place = self._at(path)
            system.delete(place, True)

    @contextlib.contextmanager
    def only_one(self, folder: str) -> Iterator[None]:
        # Such file systems have no locks that end with who holds them.
        yield

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._settings), place


def files_for(session: Any, path: str) -> tuple[Files, str]:
    """The files around `path`, and its full name there: a plain path is where the session looks for plain paths."""
    if session is None:
        return LocalFiles(), local_path(path)
    with _refused(path):
        place = session._jvm.org.apache.hadoop.fs.Path(path)
        system = place.getFileSystem(session._jsc.hadoopConfiguration())
    if system.getUri().getScheme() == "file":
        return LocalFiles(), local_path(path)
    return SessionFiles(session), system.makeQualified(place).toString().rstrip("/")


def is_remote(path: str) -> bool:
    """Whether it needs a session to be reached."""
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme != "file"


def local_path(path: str) -> str:
    """`file:/x`, `file:///x` and `x` as a full path."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return os.path.abspath(path)


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        more = "; make room and run the same command again, which goes on" if error.errno == errno.ENOSPC else ""
        raise PipelineError(f"{error.filename or path}: {what}{more}") from None


@contextlib.contextmanager
def _refused(path: str) -> Iterator[None]:
    """What the file systems of Hadoop refuse."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        told = " ".join(str(error.java_exception.getMessage()).split())
        raise PipelineError(f"{path}: {told}") from None
