"""``tilewright check``: proofs, refutations and open questions, with their exit statuses and files."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from tilewright.cli.commands import app

pytestmark = pytest.mark.sample(1)

EXAMPLES = Path(__file__).parents[2] / "examples/protocols"
RING = """protocol("ring", cluster=1, registers_per_thread=168)
symbol("kt")
buffer("a", "shared", 128, offset=0)
mbarrier("full", slots=2, count=1)
mbarrier("empty", slots=2, count=32)
with role("producer", 32):
    elected(MbarrierInit("full"))
    elected(MbarrierInit("empty"))
    elected(FenceMbarrierInit())
    all(CtaSync())
    for k in range(0, kt, 1):
        elected(Wait(Slot("empty", k % 2), (k // 2 + 1) % 2))
        elected(ArriveExpectTx(Slot("full", k % 2), 64))
        elected(TmaLoad(Region("a", k % 2 * 64, 64), Slot("full", k % 2)))
with role("consumer", 32):
    all(CtaSync())
    for k in range(0, kt, 1):
        all(Wait(Slot("full", k % 2), k // 2 % 2))
        all(Read(Region("a", k % 2 * 64, 64)))
        all(FenceProxyAsync())
        all(Arrive(Slot("empty", k % 2)))
"""


def tilewright(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "ring.txt"
    path.write_text(RING)
    return path


def test_a_proof_ends_with_status_0(ring: Path) -> None:
    result = tilewright("check", ring)
    assert result.exit_code == 0, result.output
    assert "ring: proved, 31 obligations, strict" in result.output


def test_python_files_are_run() -> None:
    result = tilewright("check", f"{EXAMPLES / 'cp_async.py'}:multistage")
    assert result.exit_code == 0, result.output
    assert "cp_async_multistage: proved" in result.output


@pytest.mark.parametrize(
    "dropped",
    [
        '        all(Wait(Slot("full", k % 2), k // 2 % 2))\n',
        "        all(FenceProxyAsync())\n",
        "    all(CtaSync())\n",
    ],
    ids=["wait", "fence", "meeting"],
)
def test_a_repair_proves_where_one_is_found(ring: Path, tmp_path: Path, dropped: str) -> None:
    broken, repaired = tmp_path / "broken.txt", tmp_path / "repaired.txt"
    broken.write_text(RING.replace(dropped, "", 1))
    result = tilewright("check", broken, "--repair", repaired)
    assert result.exit_code == 1
    if "CtaSync" in dropped:  # where roles meet is not for the synthesis to say
        assert "no waits, fences and joins were found" in result.output
        assert not repaired.exists()
        return
    assert f"ring: proved as written to {repaired}" in result.output
    assert tilewright("check", repaired).exit_code == 0


def test_waits_move_down_with_a_proof(tmp_path: Path) -> None:
    path = tmp_path / "late.txt"
    result = tilewright("check", f"{EXAMPLES / 'attention.py'}:forward", "--late-waits", path)
    assert result.exit_code == 0, result.output
    assert "proved with late waits" in result.output
    assert tilewright("check", path).exit_code == 0


def test_a_refutation_ends_with_status_1_and_is_drawn(ring: Path, tmp_path: Path) -> None:
    ring.write_text(RING.replace('        all(Wait(Slot("full", k % 2), k // 2 % 2))\n', ""))
    files = [tmp_path / name for name in ("t.json", "t.svg", "t.trace")]
    result = tilewright("check", ring, "--json", files[0], "--svg", files[1], "--trace", files[2])
    assert result.exit_code == 1
    assert "error[MBR016]" in result.output
    assert json.loads(files[0].read_text())["code"] == "MBR016"
    assert ElementTree.parse(files[1]).getroot().tag.endswith("svg")
    assert json.loads(files[2].read_text())["traceEvents"]


def test_the_policy_decides_about_unfenced_reads(ring: Path) -> None:
    ring.write_text(RING.replace("        all(FenceProxyAsync())\n", ""))
    assert tilewright("check", ring).exit_code == 1
    lenient = tilewright("check", ring, "--policy", "lenient")
    assert lenient.exit_code == 0
    assert "warning[MBR020]" in lenient.output


def test_bad_form_is_refused(ring: Path) -> None:
    ring.write_text(RING.replace('mbarrier("empty", slots=2, count=32)\n', ""))
    result = tilewright("check", ring)
    assert result.exit_code == 2
    assert "MBR006" in result.output


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe\x00",
        b'protocol("\xe9")',
        b'protocol("p")\0',
        b'protocol("p", cluster=None)\nwith role("r", 32):\n    pass\n',
        b'protocol("p")\nbuffer(None, "shared", 4)\nwith role("r", 32):\n    pass\n',
        b'protocol("p")\nwith role("r", 32):\n    all(BarSync(1 // 0, 32))\n',
        b'protocol("p")\nwith role("r", 32):\n    all(BarSync("x", 32))\n',
        b'protocol("p")\nwith role("r", "32"):\n    pass\n',
        b'protocol("p")\nmbarrier("f", None, 1)\nwith role("r", 32):\n    pass\n',
        b'protocol("p")\nbuffer("b", "nowhere", 4)\nwith role("r", 32):\n    pass\n',
        b'protocol("p")\nwith role("r", 32):\n    all(Slot("f"))\n',
        b'protocol("p")\nwith role("r", 32):\n' + b"".join(b" " * d + b"if cta == 0:\n" for d in range(1, 60)),
        b'protocol("p")\nsymbol("s")\nwith role("r", 32):\n    s = 0\n    all(BarSync(s, 32))\n',
        b'protocol("p")\nbuffer("t", "tmem", 32)\nwith role("r", 32):\n    all(Tcgen05Alloc("t", cta_group=2))\n',
        b'protocol("p")\nwith role("r", 32):\n    for k in range(0, ' + b"9" * 5000 + b", 1):\n        pass\n",
    ],
)
def test_text_that_is_no_protocol_is_a_mistake_of_usage(tmp_path: Path, text: bytes) -> None:
    """Never a traceback, never the status of a refutation."""
    path = tmp_path / "text.txt"
    path.write_bytes(text)
    result = tilewright("check", path)
    assert result.exit_code == 2, result.output
    assert "MBR00" in result.output or "CMD006" in result.output


def test_a_crash_of_ours_has_a_status_of_its_own(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("kt")

    monkeypatch.setattr("tilewright.verify.verify", broken)
    result = tilewright("check", ring)
    assert result.exit_code == 70
    assert "a bug of ours" in result.output


def test_files_that_cannot_be_written_are_a_mistake_of_usage(ring: Path, tmp_path: Path) -> None:
    ring.write_text(RING.replace("        all(FenceProxyAsync())\n", "", 1))
    assert tilewright("check", ring, "--json", tmp_path / "nowhere" / "x.json").exit_code == 2


def test_what_is_left_open_ends_with_status_3(ring: Path) -> None:
    ring.write_text(
        'protocol("wander", cluster=1, registers_per_thread=168)\nsymbol("kt")\n'
        'buffer("out", "global", 1099511627776, offset=0)\n'
        'with role("a", 32):\n    for k in range(0, kt, 1):\n        all(Write(Region("out", k * 64, 64)))\n'
    )
    result = tilewright("check", ring)
    assert result.exit_code == 3
    assert "wander: unknown, termination of the proof search" in result.output


def test_unneeded_syncs_are_listed(ring: Path) -> None:
    listed = tilewright("check", ring, "--unneeded")
    assert "unneeded: FenceMbarrierInit of producer" in listed.output
    assert listed.output.count("unneeded:") == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing.txt", "nothing.txt is no file"),
        (f"{EXAMPLES / 'gemm.py'}:STAGE", "STAGE is int"),
        (f"{EXAMPLES / 'gemm.py'}", "names no function; the file has cooperative, pingpong, multicast"),
        (f"{EXAMPLES / 'gemm.py'}:nothing", "has no nothing; the file has cooperative"),
        (f"{EXAMPLES.parent / 'softmax.py'}:softmax", "softmax is a kernel"),
    ],
)
def test_what_is_no_protocol_is_refused(name: str, words: str) -> None:
    result = tilewright("check", name)
    assert result.exit_code == 2
    assert "CMD006" in result.output
    assert words in result.output


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("def p(n): return n\n", "CMD006", "p takes n"),
        ("def p(\n", "CMD007", "SyntaxError"),
        ("import nothing_here\n", "CMD007", "No module named 'nothing_here'"),
        ("\ndef p():\n    return 1 // 0\n", "CMD007", "ZeroDivisionError"),
    ],
)
def test_what_a_file_raises_is_reported_with_its_line(text: str, code: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    result = tilewright("check", f"{file}:p")
    assert result.exit_code == 2
    assert code in result.output
    assert words in result.output
    if code == "CMD007":
        line = text.rstrip().count("\n") + 1
        assert f"{file}:{line}" in result.output


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ('b.pipelin("a", 4, 128, 1)', "pipeline"),
        ("a.producer_aquire(0)", "producer_acquire"),
        ('b.pipeline("c", stages=4, stage_byte=128, consumers=1)', "stage_bytes"),
        ("ops.TmaLod(1)", "TmaLoad"),
        ("Biuld('x')", "Build"),
    ],
)
def test_a_misspelt_name_of_the_builder_is_guessed(line: str, meant: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    head = "from tilewright.protocol import Build, ops\n\ndef p():\n    b = Build('x')\n"
    file.write_text(f"{head}    a = b.pipeline('a', 4, 128, 1)\n    {line}\n")
    result = tilewright("check", f"{file}:p")
    assert result.exit_code == 2
    assert f"{file}:6" in result.output
    assert f"help: did you mean {meant}?" in result.output


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as huge:
        huge.truncate(1 << 36)
    result = tilewright("check", file)
    assert result.exit_code == 2
    assert "has more than" in result.output
