"""The tools that score the rules, run as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "data" / "tensormap_sample.npz"


def run(tool: str, *args: str, status: int = 0) -> str:
    command = [sys.executable, str(ROOT / "tools" / tool), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == status, done.stderr
    return done.stdout


def test_the_agreement_is_printed_by_rank_and_interleave() -> None:
    lines = run("tensormap_agreement.py", str(SAMPLE)).splitlines()
    assert lines[0] == "agreement 1.000000 (5972 rows) false-legal 0 false-illegal 0"
    assert any(line.startswith("  rank 5: ") for line in lines)
    assert any(line.startswith("  interleave 2: ") for line in lines)


def test_disagreements_are_shown_with_their_rules() -> None:
    text = run("tensormap_agreement.py", str(SAMPLE), "--without", "TMA012", status=1)
    assert "false-legal row" in text
    record = json.loads(run("tensormap_agreement.py", str(SAMPLE), "--json"))
    assert record["false_legal"] == record["false_illegal"] == 0


def test_a_file_without_labels_is_refused(tmp_path: Path) -> None:
    bare = tmp_path / "bare.npz"
    np.savez(bare, columns=np.array(["rank"]), data=np.ones((1, 1), dtype=np.uint64))
    command = [sys.executable, str(ROOT / "tools" / "tensormap_agreement.py"), str(bare)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no column dtype" in done.stderr


@pytest.mark.parametrize("rows", [400])
def test_boundary_requests_are_written_as_the_labeller_reads_them(tmp_path: Path, rows: int) -> None:
    target = tmp_path / "boundary.npz"
    assert f"{rows} requests" in run("tensormap_boundary.py", str(target), "--rows", str(rows))
    with np.load(target, allow_pickle=False) as archive:
        assert archive["data"].shape == (rows, 27)
        assert "result" not in list(archive["columns"])


def test_the_printed_reference_is_current() -> None:
    assert "current" in run("tma_rules.py", "--check")


def test_coverage_counts_what_every_operator_asks_for(tmp_path: Path) -> None:
    listed = {
        "gemm": {"shapes": [[256, 256, 256]], "variants": {"splitk": [[16, 16, 4100]]}},
        "jagged_sum": {"B_vals": [4], "M_vals": [3, 64, 195], "max_seqlen": [1000], "sparsity": [0.5]},
    }
    shapes, target = tmp_path / "shapes.json", tmp_path / "coverage.json"
    shapes.write_text(json.dumps(listed))
    run("tma_coverage.py", str(shapes), "--record", str(target))
    record = json.loads(target.read_text())
    assert record["accesses"] == 9
    assert record["ours"]["gemm"] == {"direct": 3}
    assert record["ours"]["jagged_sum"] == {"direct": 1, "repaired: reshape": 1, "repaired: phases": 1}
    assert sum(record["ours"]["all"].values()) == 9


def test_the_copy_kernel_compiles(tmp_path: Path) -> None:
    target = tmp_path / "copy.cubin"
    assert "bytes in" in run("tma_execute.py", "build", str(target))
    assert target.read_bytes()[:4] == b"\x7fELF"


def test_drawn_copies_are_legal_and_cover_the_family() -> None:
    code = """
import numpy as np, tma_execute as t
cases = [t.draw(np.random.default_rng((1, i))) for i in range(300)]
assert all(t.origin(c, c.first)[0] * c.access.dtype.bytes % 16 == 0 for c in cases)
assert {c.plan.rank for c in cases} == {1, 2, 3, 4, 5}
assert {c.plan.swizzle.name for c in cases} == {"NONE", "B32", "B64", "B128"}
assert {c.access.dtype for c in cases} == set(t.DTYPES.values())
assert sum(not t.places(c, c.first).within.all() for c in cases) > 100
assert sum(c.storable for c in cases) > 150
groups = [t.draw_ragged(np.random.default_rng((1, i))) for i in range(100)]
assert {c.plan.rank for c in groups} == {4, 5}
assert sum(not t.places(c, c.first).within.all() for c in groups) > 30
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT / "tools")
    assert done.returncode == 0, done.stderr
