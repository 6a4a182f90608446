"""The cycle collector is left as it was found."""

from __future__ import annotations

import gc

import pytest

from tilewright.compiler.gc_pause import gc_paused


def test_it_rests_inside_and_runs_after() -> None:
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_runs_again_after_a_refusal() -> None:
    with pytest.raises(ValueError, match="refused"), gc_paused():
        raise ValueError("refused")
    assert gc.isenabled()


def test_who_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
