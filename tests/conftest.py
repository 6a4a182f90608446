"""Rules for all tests: GPU tests are skipped, with a message, where there is no GPU; few cases of a sampled test run by
default; hypothesis is repeatable; the cycle collector runs seldom."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support.gpu import gpu_present
from support.pytorch import installed
from support.slow import mark_unsampled
from tilewright.compiler import buildable

REFUSAL = buildable.refusal

if not installed():
    # The folder tests is on the path, so that ``import torch`` would find tests/torch, a package with nothing in it.
    sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]

# Comparing each kernel's PTX with its Transport IR takes longer than compiling it: tests/validate does, for all.
os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

# Many tests start processes, each of which would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("tilewright", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tilewright")


def pytest_collection_finish() -> None:
    """Modules and tests stay: the cycle collector would look at them again and again, which took a twelfth of the
    time of all tests."""
    _keep()
    gc.set_threshold(500_000, 5, 5)


@pytest.hookimpl(trylast=True)  # behind the fixtures' ends
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """So does what is left of a file's tests: kernels that later ones share, tables of terms."""
    if nextitem is not None and nextitem.path != item.path:
        _keep()


def _keep() -> None:
    """Leaves what there is now out of later collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_assembler_warning() -> Iterator[None]:
    """A call in the simulator asks the assembler about kernels that may spill (JIT006), which takes longer than the
    call. Tests of that ask for ``assembler_warnings``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buildable, "refusal", lambda *_: None)
        yield


@pytest.fixture
def assembler_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated calls ask the assembler whether a kernel spills."""
    monkeypatch.setattr(buildable, "refusal", REFUSAL)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects what is slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not any("[" in argument for argument in config.args):  # a case that is named runs
        mark_unsampled(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))
