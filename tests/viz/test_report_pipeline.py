"""The report's pictures of a pipeline show what the timed run and the lowered kernel say."""

from __future__ import annotations

import re
from itertools import pairwise

from examples.protocols import gemm

from support import products
from tilewright.jit.critical import critical_cycles, repeated, traced
from tilewright.jit.pipeline import PROGRAMS, TRIPS, PipelineTimeline, SharedBlock, pipeline_of
from tilewright.protocol.prices import PRODUCTS
from tilewright.protocol.timed import Activity, run_timed
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.viz.report_pipeline import (
    LEFT,
    WIDTH,
    critical_tables,
    pipeline_section,
    shared_picture,
    timeline_picture,
)


def matmul_pipeline() -> PipelineTimeline:
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
    shown = [s for s in run.spans if s.doing not in (Activity.ISSUE, Activity.WAIT)]
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


def test_a_critical_cycle_is_traced_through_the_run_at_its_prices() -> None:
    protocol = gemm.cooperative(4, 2)
    run = run_timed(protocol, {"tiles": 2, "kt": 12})
    critical = critical_cycles(protocol)
    assert not isinstance(critical, str)
    (cycle,) = critical
    marks = traced(run, cycle)
    assert [(m.lane, m.what) for m in marks[:-1]] == list(cycle.events)
    assert (marks[0].lane, marks[0].what) == (marks[-1].lane, marks[-1].what)
    assert all(later.when - earlier.when >= later.cycles - 1e-2 for earlier, later in pairwise(marks))
    assert abs(marks[-1].when - marks[0].when - cycle.cycles * cycle.iterations) < 1e-2
    assert sum(part.cycles for part in repeated(cycle)) == sum(link.cycles for link in cycle.links)


def test_the_picture_draws_every_link_inside_its_frame_and_names_its_price() -> None:
    pipeline = matmul_pipeline()
    assert not isinstance(pipeline.critical, str)
    marks = traced(pipeline.run, pipeline.critical[0])
    picture = timeline_picture(pipeline.run, marks)
    links = re.findall(r'<line x1="([^"]+)" y1="(\d+)" x2="([^"]+)" y2="(\d+)" stroke="#d6336c"', picture)
    assert len(links) == len(marks) - 1
    (height,) = re.findall(r'<svg [^>]*height="(\d+)"', picture)
    for x, y, to, end in links:
        assert LEFT <= float(x) <= float(to) <= LEFT + WIDTH + 0.5
        assert max(int(y), int(end)) < int(height)
    assert "critical cycle" in picture
    assert "critical cycle" not in timeline_picture(pipeline.run)


def test_the_table_names_lines_and_prices() -> None:
    pipeline = matmul_pipeline()
    table = "".join(critical_tables(pipeline.critical))
    assert not isinstance(pipeline.critical, str)
    assert f"takes {pipeline.critical[0].cycles:.0f} cycles an iteration" in table
    assert "products.py:" in table
    assert "acc += tw.dot(a[m, k], b[n, k].T)" in table
    assert "not known: two parties" in "".join(critical_tables("two parties"))


def test_labels_of_bytes_stay_inside_the_picture() -> None:
    total = 224 * 1024
    picture = shared_picture((SharedBlock("a", 0, total),), total)
    assert 'text-anchor="end" y="12" fill="#777">224 KiB' in picture
