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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))
