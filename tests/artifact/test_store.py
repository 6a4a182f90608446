"""The store under kills, damage, and several writers."""

from __future__ import annotations

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
from tilewright.artifact.store import Store, digest
from tilewright.diag import TilewrightError
from tilewright.diag.configuration import Configuration

KEY = digest(["scale", "sm_90a"])


def test_digest_keeps_parts_apart() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["ab"]) == digest(["ab"])


def test_put_then_get(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "store")
    assert store.get(KEY) is None
    store.put(KEY, scale())
    assert store.get(KEY) == scale()
    assert store.get(digest(["other"])) is None
    store.put(KEY, staged())
    assert store.get(KEY) == staged()


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:-1] + b"\1", lambda d: b""])
def test_a_damaged_entry_counts_as_absent(damage, tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.put(KEY, scale())
    path.write_bytes(damage(path.read_bytes()))
    assert store.get(KEY) is None
    assert not path.exists()
    store.put(KEY, scale())
    assert store.get(KEY) == scale()


def test_unwritable_folder() -> None:
    with pytest.raises(TilewrightError, match="ART008"):
        Store(Path("/proc/tilewright")).put(KEY, scale())


def test_concurrent_writers_and_readers(tmp_path: Path) -> None:
    store = Store(tmp_path)
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
from tilewright.artifact.store import Store, digest
store = Store(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    for i in range(8):
        store.put(digest([str(i)]), renamed(scale(), f"scale{i}"))
"""


def test_kills_at_any_point_leave_the_store_readable(tmp_path: Path) -> None:
    store = Store(tmp_path)
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
    store = Store(tmp_path)
    store.put(KEY, scale())
    aside = next(tmp_path.glob("*/aside"))
    old, young = aside / "old", aside / "young"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.put(KEY, scale())
    assert [p.name for p in aside.iterdir()] == ["young"]


def test_a_hit_takes_less_than_10_ms(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(KEY, scale())
    store.get(KEY)
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        store.get(KEY)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.010


def test_configuration_names_the_folder(tmp_path: Path) -> None:
    read = Configuration.from_environment
    assert read({"TILEWRIGHT_STORE": str(tmp_path)}).store == tmp_path
    assert read({"XDG_CACHE_HOME": "/cache"}).store == Path("/cache/tilewright")
    assert read({"TILEWRIGHT_STORE": ""}).store == Path.home() / ".cache" / "tilewright"
    assert read({"TILEWRIGHT_TRACEBACK": "1"}).traceback
    assert not read({}).traceback
