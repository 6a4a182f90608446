"""Rules for all tests: GPU tests are skipped, with a word, where there is no GPU; hypothesis is repeatable."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from support.gpu import gpu_present

# Comparing each kernel's PTX with its Transport IR takes longer than compiling it: tests/validate does, for all.
os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

settings.register_profile("tilewright", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tilewright")


@pytest.fixture(autouse=True)
def nothing_foretold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call in the simulator asks the assembler about kernels that may spill (JIT006), which takes longer than the
    call. Tests of that are marked ``foretells``."""
    if request.node.get_closest_marker("foretells") is None:
        monkeypatch.setattr("tilewright.compiler.buildable.refusal", lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))
