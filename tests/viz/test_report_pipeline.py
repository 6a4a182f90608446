"""The report's pictures of a pipeline show what the timed run and the lowered kernel say."""

from __future__ import annotations

import re
from itertools import pairwise

from examples.protocols import gemm

from support import products
from tilewright.jit.pipeline import PROGRAMS, TRIPS, Pipeline, SharedBlock, pipeline_of
from tilewright.protocol.prices import PRODUCTS
from tilewright.protocol.timed import Doing, run_timed
from tilewright.schedule.hopper.candidates import Candidate
from tilewright.schedule.hopper.place import Refused
from tilewright.viz.report_pipeline import pipeline_section, shared_picture, timeline_picture


def matmul_pipeline() -> Pipeline:
    found = products.lower(products.nt, Candidate(2, stages=3), bm=128)
    assert not isinstance(found, Refused), found.reason
    pipeline = pipeline_of(found.scheduled.kernel)
    assert pipeline is not None
    return pipeline


def test_the_run_shows_every_product_of_every_tile() -> None:
    pipeline = matmul_pipeline()
    assert not pipeline.run.stuck
    done = [s for s in pipeline.run.spans if s.lane == PRODUCTS]
    wgmmas = 2  # one for each consumer warpgroup: the protocol holds the steps of a stage as one
    assert len(done) == PROGRAMS * TRIPS * wgmmas
    assert {s.slot for s in done} == {0, 1, 2}


def test_blocks_lie_inside_shared_memory_and_stages_apart() -> None:
    pipeline = matmul_pipeline()
    staged = [b for b in pipeline.blocks if b.slot is not None]
    assert {b.slot for b in staged} == {0, 1, 2}
    assert all("128-byte swizzle" in b.how for b in staged)
    ordered = sorted(staged, key=lambda b: b.begin)
    assert all(a.end <= b.begin for a, b in pairwise(ordered))
    assert all(0 <= b.begin < b.end <= pipeline.shared_bytes for b in pipeline.blocks)


def test_one_box_a_span_in_its_lane() -> None:
    run = run_timed(gemm.cooperative(), {"tiles": 1, "kt": 3})
    picture = timeline_picture(run)
    boxes = re.findall(r'height="16" fill="(#\w+)"', picture)
    shown = [s for s in run.spans if s.doing not in (Doing.ISSUE, Doing.WAIT)]
    assert len(boxes) == len(shown)
    assert all(lane in picture for lane in run.lanes)


def test_blocks_that_share_bytes_lie_under_each_other() -> None:
    ring = SharedBlock("ab", 0, 64, 0)
    over, after = SharedBlock("d", 32, 96), SharedBlock("e", 96, 128)
    picture = shared_picture((ring, over, after), 128)
    rows = re.findall(r'y="(\d+)" width="[^"]+" height="34"', picture)
    assert rows == ["20", "20", "60"]


def test_words_beside_the_pictures() -> None:
    page = "".join(pipeline_section(matmul_pipeline()))
    assert "box 128 x 64 of a, 128-byte swizzle" in page
    assert "".join(pipeline_section(None)) == ""
