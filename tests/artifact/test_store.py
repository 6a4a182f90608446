"""The store under kills, damage, and several writers."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.artifacts import renamed, scale, staged
from support.timing import quickest
from tilewright.artifact import bundle
from tilewright.artifact.store import ArtifactStore, digest
from tilewright.diag import TilewrightError
from tilewright.diag.configuration import Configuration

KEY = digest(["scale", "sm_90a"])


def test_digest_keeps_parts_apart() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["ab"]) == digest(["ab"])


def test_put_then_get(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "new" / "store")
    assert store.get(KEY) is None
    store.put(KEY, scale())
    assert store.get(KEY) == scale()
    assert store.get(digest(["other"])) is None
    store.put(KEY, staged())
    assert store.get(KEY) == staged()


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:-1] + b"\1", lambda d: b""])
def test_a_damaged_entry_counts_as_absent(damage, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    path = store.put(KEY, scale())
    path.write_bytes(damage(path.read_bytes()))
    assert store.get(KEY) is None
    assert not path.exists()
    store.put(KEY, scale())
    assert store.get(KEY) == scale()


def test_unwritable_folder() -> None:
    with pytest.raises(TilewrightError, match="ART008"):
        ArtifactStore(Path("/proc/tilewright")).put(KEY, scale())


def test_concurrent_writers_and_readers(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.put(KEY, scale())
    names = {f"scale{i}" for i in range(16)} | {"scale"}

    def write(i: int) -> None:
        store.put(KEY, renamed(scale(), f"scale{i}"))

    def read(_: int) -> str:
        artifact = store.get(KEY)
        assert artifact is not None
        return artifact.name

    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(write, i) for i in range(16)]
        assert set(pool.map(read, range(32))) <= names
        for w in writes:
            w.result()


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.artifacts import renamed, scale
from tilewright.artifact.store import ArtifactStore, digest
store = ArtifactStore(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    for i in range(8):
        store.put(digest([str(i)]), renamed(scale(), f"scale{i}"))
"""


def test_kills_at_any_point_leave_the_store_readable(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    source = random.Random(7)
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parents[1])], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(source.uniform(0.0, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for i in range(8):
            path = store.path(digest([str(i)]))
            existed = path.exists()
            artifact = store.get(digest([str(i)]))
            assert artifact is None or artifact.name == f"scale{i}"
            assert (artifact is not None) == existed  # never a half entry
    store.put(KEY, scale())
    assert store.get(KEY) == scale()


def test_leftovers_of_killed_writers_are_swept(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.put(KEY, scale())
    aside = next(tmp_path.glob("*/aside"))
    dead, alive = aside / "dead", aside / "alive"
    dead.write_bytes(b"half")
    alive.write_bytes(b"half")
    with alive.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as a writer that is still at it
        store.put(KEY, scale())
        assert [p.name for p in aside.iterdir()] == ["alive"]
    store.put(KEY, scale())
    assert not list(aside.iterdir())


KEPT_BY_A_KILL = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.artifacts import scale
from tilewright.artifact import atomic_files, bundle
atomic_files.sync_folder = lambda folder: os.kill(os.getpid(), 9)
bundle.write_folder(scale(), Path(sys.argv[1]))
"""


def test_leftovers_beside_a_folder_are_swept(tmp_path: Path) -> None:
    out = tmp_path / "scale.bundle"
    arguments = [sys.executable, "-c", KEPT_BY_A_KILL, str(out), str(Path(__file__).parents[1])]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    bundle.write_folder(scale(), out)
    assert list(tmp_path.iterdir()) == [out]


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.artifacts import scale
from tilewright.artifact import bundle
from tilewright.artifact.store import ArtifactStore, digest
from tilewright.diag import TilewrightError
folder = Path(sys.argv[1])
bundle.write_folder(scale(), folder / "old.bundle")
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # no file may become longer, as on a disk without room
for write in (lambda: ArtifactStore(folder / "store").put(digest(["x"]), scale()),
              lambda: bundle.write_folder(scale(), folder / "new.bundle"),
              lambda: bundle.write_folder(scale(), folder / "old.bundle")):
    try:
        write()
    except TilewrightError as error:
        print(error.code)
"""


def test_a_disk_without_room(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", FULL, str(tmp_path), str(Path(__file__).parents[1])]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ART008", "ART010", "ART010"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old.bundle", "store"]
    assert bundle.read(tmp_path / "old.bundle") == scale()
    assert not any(p.is_file() for p in (tmp_path / "store").rglob("*"))


def test_entries_are_bound_to_their_key(tmp_path: Path) -> None:
    store, other = ArtifactStore(tmp_path), digest(["other"])
    path = store.put(KEY, scale())
    moved = store.path(other)
    moved.parent.mkdir(parents=True, exist_ok=True)
    moved.write_bytes(path.read_bytes())
    assert store.get(other) is None
    assert store.get(KEY) == scale()
    assert bundle.read(path) == scale()  # the command line shows it


@pytest.mark.parametrize("kind", ["fifo", "zero", "folder", "unreadable", "loop"])
def test_what_is_no_plain_file_counts_as_absent_and_is_replaced(kind: str, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    path = store.path(KEY)
    path.parent.mkdir(parents=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "zero":
            path.symlink_to("/dev/zero")
        case "folder":
            (path / "inner").mkdir(parents=True)
        case "unreadable":
            path.write_bytes(b"TWBUNDLE")
            path.chmod(0)
        case _:
            path.symlink_to(path)
    assert store.get(KEY) is None
    store.put(KEY, scale())
    assert store.get(KEY) == scale()


def test_a_hit_takes_less_than_10_ms(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.put(KEY, scale())
    store.get(KEY)
    assert quickest(lambda: store.get(KEY), 0.010) < 0.010


def test_configuration_names_the_folder(tmp_path: Path) -> None:
    read = Configuration.from_environment
    assert read({"TILEWRIGHT_STORE": str(tmp_path)}).store == tmp_path
    assert read({"XDG_CACHE_HOME": "/cache"}).store == Path("/cache/tilewright")
    assert read({"TILEWRIGHT_STORE": ""}).store == Path.home() / ".cache" / "tilewright"
    assert read({"TILEWRIGHT_TRACEBACK": "1"}).traceback
    assert not read({}).traceback
    assert read({"TILEWRIGHT_STORE": "~nobody-of-this-name/x"}).store.parent == Path(os.devnull)


def test_the_environment_counts_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "tilewright").mkdir()
    (tmp_path / "tilewright" / "config.toml").write_text('store = "/of/file"\nshipped = "/of/shipped"\n')
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert Configuration.from_environment(home).store == Path("/of/file")
    read = Configuration.from_environment({**home, "TILEWRIGHT_STORE": "/of/environment"})
    assert (read.store, read.shipped) == (Path("/of/environment"), Path("/of/shipped"))


def test_a_note_is_bound_to_its_key_and_read_back_whole(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    one, other = digest(["one"]), digest(["other"])
    assert store.note(one) is None
    path = store.put_note(one, "two lines\nof ä text")
    assert store.note(one) == "two lines\nof ä text"
    store.put_note(one, "")
    assert store.note(one) == ""
    elsewhere = store.put_note(other, "?")
    elsewhere.write_bytes(path.read_bytes())
    assert store.note(other) is None
    assert not elsewhere.exists()
    for bad in (b"", b"\xff\n\xff", path.read_bytes() + b"more"):
        path.write_bytes(bad)
        assert store.note(one) is None
        assert not path.exists()
    os.mkfifo(path)
    assert store.note(one) is None
