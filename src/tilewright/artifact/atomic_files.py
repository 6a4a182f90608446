"""Atomic writes: files are written to a working folder, synced to disk, then renamed into place.

A writer holds a lock on its temporary files, which the operating system releases when its process ends, however it
ends. A later writer that gets the lock knows that the first one is dead, and removes what it left.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4


def write_atomically(path: Path, data: bytes, working: Path) -> None:
    """Write ``data`` to ``path`` atomically, replacing what is there. ``working`` is a folder for temporary files on
    the same disk; those of dead writers are removed first. Raises OSError."""
    working.mkdir(parents=True, exist_ok=True)
    _remove_left(working.iterdir())
    with _locked(lambda: _new_file(working / uuid4().hex)) as temporary:
        try:
            temporary.write_bytes(data)
            _sync(temporary)
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
    sync_folder(path.parent)


@contextmanager
def sibling_folder(folder: Path) -> Generator[Path]:
    """A temporary folder on the disk of ``folder``, removed afterwards; those of dead writers of ``folder`` are removed
    first."""
    prefix = f".{folder.name[:100]}."
    _remove_left(folder.parent.glob(f"{glob.escape(prefix)}????????"))
    with _locked(lambda: Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))) as working:
        try:
            yield working
        finally:
            shutil.rmtree(working, ignore_errors=True)


def write_synced(path: Path, data: bytes | memoryview) -> None:
    """Write a new file and wait until it is on the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the folder's entries are on the disk, so that a rename in it survives a crash."""
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _new_file(path: Path) -> Path:
    path.touch(exist_ok=False)
    return path


@contextmanager
def _locked(make: Callable[[], Path]) -> Generator[Path]:
    """The path that ``make`` creates, locked until the block ends or this process does."""
    while True:
        path = make()
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # taken for a dead writer's in between
        with suppress(OSError):  # a disk without locks: nothing is ever removed there
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)
    try:
        yield path
    finally:
        os.close(handle)


def _remove_left(paths: Iterable[Path]) -> None:
    """Remove those of ``paths`` that no living process has locked."""
    for path in paths:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            finally:
                os.close(handle)
