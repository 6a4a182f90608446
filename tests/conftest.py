"""Rules for all tests: GPU tests are skipped, with a message, where there is no GPU; few cases of a sampled test run by
default; hypothesis is repeatable."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

from support.gpu import gpu_present
from support.pytorch import installed
from support.slow import mark_unsampled

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


@pytest.fixture(autouse=True)
def no_assembler_warning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call in the simulator asks the assembler about kernels that may spill (JIT006), which takes longer than the
    call. Tests of that are marked ``assembler_warnings``."""
    if request.node.get_closest_marker("assembler_warnings") is None:
        monkeypatch.setattr("tilewright.compiler.buildable.refusal", lambda *_: None)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects what is slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not any("[" in argument for argument in config.args):  # a case that is named runs
        mark_unsampled(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))
