"""Protocols that readers wrote to find the checker wrong: each has the answer that its name asks for, and quickly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tilewright.base.verdict import Proved, Refuted
from tilewright.contract import judge
from tilewright.protocol import from_text
from tilewright.protocol.model import Protocol

FOLDER = Path(__file__).parents[1] / "data/checked_protocols"
SECONDS = 0.2

REFUTED = {
    "bad_proved_alloc_blocks": "MBR038",
    "bad_proved_alloc_over_512": "MBR038",
    "bad_proved_bar_id_16": "MBR038",
    "bad_proved_dsmem_bar_elsewhere": "MBR039",
    "bad_proved_dsmem_source_exits": "MBR025",
    "bad_proved_no_start_sync": "MBR037",
    "bad_proved_remote_wait": "MBR039",
    "bad_proved_smem_300k": "MBR038",
    "bad_proved_tmem_96": "MBR038",
    "bad_unknown_descriptor": "MBR023",
    "bad_unknown_remote_read_exit": "MBR025",
    "bad_unknown_remote_write_exit": "MBR025",
    "unclear_commit_publishes_generic": "MBR016",
    "unclear_cpasync_publishes_generic": "MBR016",
}
PROVED = (
    "crash_offset",
    "crash_release_kt_minus_1",
    "good_timeout_even_odd",
    "good_unknown_tail_wait",
    "right_alloc_blocks",
    "right_alloc_over_512",
    "right_dsmem_source_exits",
    "right_no_start_sync",
)


def read(name: str) -> Protocol:
    return from_text((FOLDER / f"{name}.txt").read_text())


def test_every_file_is_asked_about() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} == {*REFUTED, *PROVED}


@pytest.mark.parametrize("name", REFUTED)
def test_wrong_ones_are_refuted_for_what_is_wrong(name: str) -> None:
    proof = judge(read(name)).proof
    assert isinstance(proof, Refuted), proof
    assert proof.witness.code == REFUTED[name], proof.witness.detail


@pytest.mark.parametrize("name", PROVED)
def test_right_ones_are_proved_quickly(name: str) -> None:
    protocol = read(name)
    spent: list[float] = []
    for again in range(3):  # the quickest of three, under names of their own: other work shares the machine
        start = time.process_time()
        proof = judge(Protocol(f"{name}{again}", *list(vars(protocol).values())[1:])).proof
        spent.append(time.process_time() - start)
        assert isinstance(proof, Proved), proof
    assert min(spent) < SECONDS
