"""Protocols that readers wrote to find the checker wrong: each has the answer that its name asks for, and quickly."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.protocol import from_text
from tilewright.protocol.model import Protocol
from tilewright.verify import verify

FOLDER = Path(__file__).parents[1] / "data/checked_protocols"
SECONDS = 0.2

REFUTED = {
    "bad_cluster_store_no_join": "MBR016",
    "bad_elect_other_warps": "MBR024",
    "bad_multicast_arrive_cta_scope": "MBR017",
    "bad_multicast_own_only": "MBR018",
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
    "right_async_grid",
    "right_cluster_exchange",
    "right_cpasync",
    "right_dsmem",
    "right_flags",
    "right_flags_fences",
    "right_last",
    "right_multicast",
    "right_multicast_read",
    "right_named",
    "right_pingpong",
    "right_reload",
    "right_ring_late_release",
    "right_ring_two_expects",
    "right_ring_warp_release",
    "right_store",
    "right_store_role",
    "right_store_two",
    "right_store_wait_per_warp",
    "right_two_consumers",
    "right_alloc_over_512",
    "right_dsmem_source_exits",
    "right_no_start_sync",
)


OPEN = {"open_dsmem_to_itself": "whether the target may be the CTA itself"}
"""What the PTX ISA does not say, by the words of the answer."""


def read(name: str) -> Protocol:
    return from_text((FOLDER / f"{name}.txt").read_text())


def test_every_file_is_asked_about() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} == {*REFUTED, *PROVED, *OPEN}


def spent(protocol: Protocol) -> tuple[object, float]:
    """The answer, and the processor time that it took."""
    start = time.process_time()
    proof = verify(protocol).proof
    return proof, time.process_time() - start


def test_a_breach_is_shown_or_left_open_within_a_second() -> None:
    load = '        elected(TmaLoad(Region("b", k % 2 * 16384 + cta * 8192, 8192)'
    one = '        if cta == 0:\n            elected(TmaLoad(Region("b", k % 2 * 16384, 16384)'
    text = (FOLDER / "right_multicast_read.txt").read_text()
    assert load in text
    proof, seconds = spent(from_text(text.replace(load, one)))  # arrivals of two rounds may fall into one phase
    assert isinstance(proof, Unknown)
    assert proof.obligation == "barrier recycling"
    assert seconds < 2  # 0.8 where nothing else runs
    for name in ("bad_multicast_arrive_cta_scope", "bad_multicast_own_only"):
        found = [spent(replace(read(name), name=f"{name}{again}")) for again in range(2)]
        assert all(isinstance(proof, Refuted) for proof, _ in found)
        assert min(seconds for _, seconds in found) < 1


@pytest.mark.parametrize("name", OPEN)
def test_what_the_manual_leaves_open_is_named(name: str) -> None:
    proof = verify(read(name)).proof
    assert isinstance(proof, Unknown)
    assert OPEN[name] in proof.reason


@pytest.mark.parametrize("name", REFUTED)
def test_wrong_ones_are_refuted_for_what_is_wrong(name: str) -> None:
    proof = verify(read(name)).proof
    assert isinstance(proof, Refuted), proof
    assert proof.witness.code == REFUTED[name], proof.witness.detail


@pytest.mark.parametrize("name", PROVED)
def test_right_ones_are_proved_quickly(name: str) -> None:
    protocol = read(name)
    spent: list[float] = []
    for again in range(3):  # the quickest of three, under names of their own: other work shares the machine
        start = time.process_time()
        proof = verify(replace(protocol, name=f"{name}{again}")).proof
        spent.append(time.process_time() - start)
        assert isinstance(proof, Proved), proof
    assert min(spent) < SECONDS


EDITED: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "multicast_own_release": (
        "right_multicast",
        "MBR018",
        [
            (
                (
                    '        elected(Arrive(Slot("empty", k % 2, cta=0)))\n'
                    '        elected(Arrive(Slot("empty", k % 2, cta=1)))\n'
                ),
                '        elected(Arrive(Slot("empty", k % 2), count=2))\n',
            )
        ],
    ),
    "multicast_no_end": (
        "right_multicast",
        "MBR025",
        [
            ("k % 2, cta=1)))\n    all(ClusterArrive())\n    all(ClusterWait())\n", "k % 2, cta=1)))\n"),
            ("ctas=(0, 1)))\n    all(ClusterArrive())\n    all(ClusterWait())\n", "ctas=(0, 1)))\n"),
        ],
    ),
    "multicast_bytes": (
        "right_multicast",
        "MBR016",
        [("16384))\n        elected(TmaLoad", "8192))\n        elected(TmaLoad")],
    ),
    "multicast_no_start": (
        "right_multicast",
        "MBR037",
        [
            (
                "FenceMbarrierInit())\n    all(ClusterArrive())\n    all(ClusterWait())\n",
                "FenceMbarrierInit())\n    all(CtaSync())\n",
            ),
            ("128):\n    all(ClusterArrive())\n    all(ClusterWait())\n", "128):\n    all(CtaSync())\n"),
        ],
    ),
    "cluster_relaxed": (
        "right_cluster_exchange",
        "MBR016",
        [
            (
                'all(Write(Region("x", 0, 512)))\n        all(ClusterArrive())',
                'all(Write(Region("x", 0, 512)))\n        all(ClusterArrive(release=False))',
            )
        ],
    ),
    "cluster_no_second": (
        "right_cluster_exchange",
        "MBR025",
        [("cta=-cta + 1)))\n        all(ClusterArrive())\n        all(ClusterWait())\n", "cta=-cta + 1)))\n")],
    ),
    "pingpong_turn_parity": ("right_pingpong", "MBR014", [('Slot("turn", 1), t % 2', 'Slot("turn", 1), (t + 1) % 2')]),
    "pingpong_release_other": (
        "right_pingpong",
        "MBR015",
        [('elected(Arrive(Slot("empty", (2 * t + 1) % 4)))', 'elected(Arrive(Slot("empty", 2 * t % 4)))')],
    ),
    "pingpong_early_release": (
        "right_pingpong",
        "MBR017",
        [
            (
                '        all(WgmmaWait())\n        elected(Arrive(Slot("empty", 2 * t % 4)))',
                '        elected(Arrive(Slot("empty", 2 * t % 4)))\n        all(WgmmaWait())',
            )
        ],
    ),
    "ring_consumer_phase": ("right_ring_late_release", "MBR014", [("k // 3 % 2", "(k // 3 + 1) % 2")]),
    "ring_producer_phase": ("right_ring_late_release", "MBR012", [("(k // 3 + 1) % 2", "k // 3 % 2")]),
    "ring_tx": (
        "right_ring_late_release",
        "MBR011",
        [("12288))\n        elected(TmaLoad", "8192))\n        elected(TmaLoad")],
    ),
    "ring_release_k": ("right_ring_late_release", "MBR012", [('Slot("empty", (k - 1) % 3)', 'Slot("empty", k % 3)')]),
    "ring_wait_two": ("right_ring_late_release", "MBR017", [("WgmmaWait(1)", "WgmmaWait(2)")]),
    "ring_commit_after_load": (
        "right_ring_late_release",
        "MBR011",
        [
            (
                (
                    '        elected(ArriveExpectTx(Slot("full", k % 3), 12288))\n'
                    '        elected(TmaLoad(Region("a", k % 3 * 8192, 8192), Slot("full", k % 3)))\n'
                ),
                (
                    '        elected(TmaLoad(Region("a", k % 3 * 8192, 8192), Slot("full", k % 3)))\n'
                    '        elected(Arrive(Slot("full", k % 3)))\n'
                    '        elected(ExpectTx(Slot("full", k % 3), 12288))\n'
                ),
            )
        ],
    ),
    "ring_warp_count": (
        "right_ring_late_release",
        "MBR015",
        [('elected(Arrive(Slot("empty"', 'per_warp(Arrive(Slot("empty"')],
    ),
    "store_no_fence": ("right_store", "MBR019", [("        all(FenceProxyAsync())\n", "")]),
    "store_no_read_wait": ("right_store", "MBR023", [("        elected(BulkWait(read=True))\n", "")]),
    "store_late_wait": (
        "right_store",
        "MBR023",
        [
            (
                "        elected(BulkWait(read=True))\n        all(BarSync(1, 128))\n",
                "        all(BarSync(1, 128))\n        elected(BulkWait(read=True))\n",
            )
        ],
    ),
    "store_wait_one": ("right_store", "MBR023", [("BulkWait(read=True)", "BulkWait(1, read=True)")]),
    "store_no_end": ("right_store", "MBR024", [("    elected(BulkWait())\n", "")]),
    "store_two_pending": ("right_store_two", "MBR023", [("BulkWait(1, read=True)", "BulkWait(2, read=True)")]),
    "flags_relaxed_store": (
        "right_flags",
        "MBR016",
        [("FlagStore(flag[0], 1)", 'FlagStore(flag[0], 1, sem="relaxed")')],
    ),
    "flags_relaxed_wait": ("right_flags", "MBR016", [("least=1)", 'least=1, sem="relaxed")')]),
    "flags_cta_scope": ("right_flags", "MBR041", [("FlagStore(flag[0], 1)", 'FlagStore(flag[0], 1, scope="cta")')]),
    "flags_not_resident": ("right_flags", "MBR040", [("resident=2", "resident=1"), ("cta == 0", "cta == 1")]),
    "flags_fence_before_sync": (
        "right_flags",
        "MBR016",
        [
            (
                "        all(CtaSync())\n        elected(FlagStore(flag[0], 1))",
                (
                    "        all(FenceAcqRel())\n"
                    "        all(CtaSync())\n"
                    '        elected(FlagStore(flag[0], 1, sem="relaxed"))'
                ),
            )
        ],
    ),
    "flags_no_sync": (
        "right_flags",
        "MBR016",
        [("        all(Write(data))\n        all(CtaSync())\n", "        all(Write(data))\n")],
    ),
    "reload_no_fence": ("right_reload", "MBR020", [("        all(FenceProxyAsync())\n", "")]),
    "reload_no_sync": (
        "right_reload",
        "MBR018",
        [("        all(FenceProxyAsync())\n        all(CtaSync())\n", "        all(FenceProxyAsync())\n")],
    ),
    "cpasync_two_pending": ("right_cpasync", "MBR023", [("CpAsyncWait(1)", "CpAsyncWait(2)")]),
    "cpasync_no_sync": (
        "right_cpasync",
        "MBR016",
        [("        all(CpAsyncWait(1))\n        all(CtaSync())\n", "        all(CpAsyncWait(1))\n")],
    ),
    "cpasync_no_second": (
        "right_cpasync",
        "MBR017",
        [
            (
                'all(Read(Region("x", i % 2 * 4096, 4096)))\n        all(CtaSync())\n',
                'all(Read(Region("x", i % 2 * 4096, 4096)))\n',
            )
        ],
    ),
    "two_consumers_count1": (
        "right_two_consumers",
        "MBR015",
        [('"empty", slots=2, count=2', '"empty", slots=2, count=1')],
    ),
    "two_consumers_count3": (
        "right_two_consumers",
        "MBR012",
        [('"empty", slots=2, count=2', '"empty", slots=2, count=3')],
    ),
    "two_consumers_twice": (
        "right_two_consumers",
        "MBR024",
        [
            (
                (
                    'acc1, (Region("a", k % 2 * 8192 + 4096, 4096),)))\n'
                    "        all(WgmmaCommit())\n"
                    "        all(WgmmaWait())\n"
                ),
                'acc1, (Region("a", k % 2 * 8192 + 4096, 4096),)))\n        all(WgmmaCommit())\n',
            )
        ],
    ),
    "named_no_back": (
        "right_named",
        "MBR017",
        [
            ("        if 1 < k:\n            all(BarSync(3 + k % 2, 256))\n", ""),
            ("        if k < kt - 2:\n            all(BarArrive(3 + k % 2, 256))\n", ""),
        ],
    ),
    "named_one_id": ("right_named", "MBR026", [("1 + k % 2", "1")]),
    "named_late": ("right_named", "MBR017", [("if 1 < k", "if 2 < k"), ("kt - 2", "kt - 3")]),
    "named_threads": ("right_named", "MBR026", [("BarArrive(1 + k % 2, 256)", "BarArrive(1 + k % 2, 128)")]),
    "last_relaxed": ("right_last", "MBR016", [("ticket=ticket)", 'ticket=ticket, sem="relaxed")')]),
    "last_release_only": ("right_last", "MBR016", [("ticket=ticket)", 'ticket=ticket, sem="release")')]),
    "last_acquire_only": ("right_last", "MBR016", [("ticket=ticket)", 'ticket=ticket, sem="acquire")')]),
    "last_no_second_sync": ("right_last", "MBR016", [("ticket=ticket))\n    all(CtaSync())\n", "ticket=ticket))\n")]),
    "last_first": ("right_last", "MBR016", [("ticket == 2", "ticket == 1")]),
    "last_cta": ("right_last", "MBR041", [("ticket=ticket)", 'ticket=ticket, scope="cta")')]),
    "async_grid_no_fences": (
        "right_async_grid",
        "MBR019",
        [("        all(FenceProxyAsync())\n", ""), ("        elected(FenceProxyAsync())\n", "")],
    ),
    "store_role_wait_after": (
        "right_store_role",
        "MBR017",
        [
            (
                "        elected(BulkWait(read=True))\n        all(BarArrive(2, 160))\n",
                "        all(BarArrive(2, 160))\n        elected(BulkWait(read=True))\n",
            )
        ],
    ),
    "store_role_waits_elsewhere": (
        "right_store_role",
        "MBR017",
        [
            (
                "        elected(BulkWait(read=True))\n        all(BarArrive(2, 160))\n",
                "        all(BarArrive(2, 160))\n",
            ),
            ("        all(BarSync(2, 160))\n", "        elected(BulkWait(read=True))\n        all(BarSync(2, 160))\n"),
        ],
    ),
    "dsmem_to_all_without_an_end": (
        "open_dsmem_to_itself",
        "MBR025",
        [
            (
                "    all(Read(inbox))\n    all(ClusterArrive())\n    all(ClusterWait())\n",
                "    all(Read(inbox))\n",
            )
        ],
    ),
    "dsmem_to_all_into_one_place": (
        "open_dsmem_to_itself",
        "MBR018",
        [("cta * 1024, 1024, cta=2", "0, 1024, cta=2")],
    ),
    "dsmem_no_last": (
        "right_dsmem",
        "MBR025",
        [
            (
                "        all(Read(dst))\n        all(ClusterArrive())\n        all(ClusterWait())\n",
                "        all(Read(dst))\n",
            )
        ],
    ),
    "dsmem_no_fence": ("right_dsmem", "MBR019", [("        all(FenceProxyAsync())\n", "")]),
    "dsmem_bytes": (
        "right_dsmem",
        "MBR012",
        [('ArriveExpectTx(Slot("full", 0), 1024)', 'ArriveExpectTx(Slot("full", 0), 512)')],
    ),
}
"""Of right ones, the rule that edits of their text break: phases, bytes, counts, fences, groups, scopes, exits."""


@pytest.mark.parametrize("name", EDITED)
def test_edits_of_right_ones_are_refuted(name: str) -> None:
    base, code, edits = EDITED[name]
    text = (FOLDER / f"{base}.txt").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    proof = verify(from_text(text)).proof
    assert isinstance(proof, Refuted), proof
    assert proof.witness.code == code, proof.witness.detail
