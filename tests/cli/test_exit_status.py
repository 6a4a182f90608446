"""How a process of the command line ends, whatever is handed in: a status, and text that steers no terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw
from support.artifacts import renamed, scale
from tilewright.artifact import bundle
from tilewright.cli.process import ended
from tilewright.diag import Diagnostic, render
from tilewright.lang import tensors

pytestmark = pytest.mark.sample(1)

COMMAND = [sys.executable, "-m", "tilewright"]


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=120, **options)  # type: ignore[call-overload]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = ended(words)
    told = capsys.readouterr()
    assert "Traceback" not in told.out + told.err
    return status, told.out + told.err


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("show", "layout", "(8,8):(8,1)"), 0, "0"),
        (("show", "banks", "(1000000000,1000000000):(1,1)"), 2, "LAY027"),
        (("show", "banks", "1000000000000:1"), 2, "LAY027"),
        *((("show", "banks", "32:32", "--element", n), 2, "1, 2, 4, 8, 16") for n in ("3", "0", "-4", "32")),
        (("show", "layout", "((4,2),16):((2,4),1)", "--swizzle", "3,1000000000,3"), 2, "LAY013"),
        (("show", "layout", "((4,2),16):((2,4),1)", "--swizzle", "3,100000000,3"), 2, "LAY011"),
        (("show", "layout", "8:1", "--swizzle", "\N{SUPERSCRIPT TWO},4,3"), 2, "LAY013"),
        (("show", "layout", "(" * 400 + "8" + ")" * 400), 2, "LAY013"),
        (("show", "layout", "8:" + "9" * 5000), 2, "LAY013"),
        (("show", "layout", "8:1", "--out", "/proc/x.svg"), 2, "/proc/x.svg"),
        (("show", "x" * 5000), 2, "too long"),
        (("show", "a\x00b"), 2, "null"),
        (("explain", "wgmma", "--dtype", "i64", "--tile", "128x64"), 2, "i64"),
        (("explain", "tma", "--shape", "9" * 5000, "--dtype", "bf16", "--box", "1"), 2, "CMD002"),
        (("--version",), 0, f"tilewright {tw.__version__}"),
        (("nothing",), 2, "No such command"),
        (("validate", "x", "--seconds", "inf"), 2, "--seconds"),
        (("validate", "x", "--seconds", "nan"), 2, "--seconds"),
        (("explain", "TMA999"), 2, "CMD003"),
        (("compile", "nowhere.py:f", "--out", "x"), 2, "CMD001"),
    ],
)
def test_statuses(words: tuple[str, ...], status: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, text = said(capsys, *words)
    assert (found, told in text) == (status, True), text


@pytest.mark.parametrize(
    ("option", "code"),
    [
        (("--target", "sm_999"), "JIT004"),
        (("--dtype", "x=f33"), "JIT003"),
        (("--dtype", "z=f32"), "LNG029"),
        (("--static", "Q=3"), "LNG029"),
        (("--schedule", "stages=0"), "LNG028"),
    ],
)
def test_an_option_that_the_kernel_can_not_have(
    option: tuple[str, str], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = kernel_of(tmp_path, "y[m] = x[m]")
    status, text = said(capsys, "compile", f"{file}:k", *option, "--out", str(tmp_path / "out"))
    assert (status, code in text) == (2, True), text


def test_a_file_that_ends_python_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ends.py").write_text("raise SystemExit(0)\n")
    for command in (("check", f"{tmp_path}/ends.py:f"), ("compile", f"{tmp_path}/ends.py:f", "--out", "x")):
        status, text = said(capsys, *command)
        assert (status, "CMD007" in text) == (2, True)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("y[m] = x[m] + scael", "name 'scael' is not defined"),
        ("y[m] = x[m] * (1 / 0)", "ZeroDivisionError"),
        ("import nothing_here", "No module named 'nothing_here'"),
        ("with tw.stream(x.shape[0], 4): pass", "TypeError"),
        ("exit(3)", "SystemExit: 3"),
    ],
)
def test_what_a_kernels_body_raises_is_reported_at_its_line(
    line: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = said(capsys, "compile", f"{kernel_of(tmp_path, line)}:k", "--out", str(tmp_path / "out"))
    assert (status, "CMD007" in text, told in text, "mine.py:6" in text) == (2, True, True, True), text
    assert ("did you mean scale?" in text) == ("scael" in line)


def test_what_our_functions_raise_is_no_fault_of_a_kernels_body(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(tensors, "_direct", None)
    file = kernel_of(tmp_path, "y[m] = x[m]")
    status, text = said(capsys, "compile", f"{file}:k", "--out", str(tmp_path / "out"))
    assert (status, "bug of ours" in text) == (70, True), text


def kernel_of(folder: Path, line: str) -> Path:
    """A file with a kernel, whose sixth line is given."""
    signature = 'def k(x: tw.Tensor["M"], y: tw.Tensor["M"]):'
    body = f"    m = tw.grid(y, 64)\n    {line}\n"
    file = folder / "mine.py"
    file.write_text(f"import tilewright as tw\nscale = 2\n@tw.kernel\n{signature}\n{body}")
    return file


def test_the_text_of_a_bundle_cannot_control_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle.write_folder(renamed(scale(), "\x1b[31mred\x07\N{RIGHT-TO-LEFT OVERRIDE}"), tmp_path / "x.bundle")
    status, text = said(capsys, "show", str(tmp_path / "x.bundle"))
    assert status == 0
    assert "\\x1b[31mred\\x07\\u202e" in text
    assert "\x1b" not in text


def test_a_diagnostic_steers_no_terminal() -> None:
    assert "\x1b" not in render(Diagnostic("CMD001", found="\x1b]0;title\x07"))


def test_a_full_disk_below_the_output() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "explain"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


@pytest.mark.skipif(os.getuid() == 0 and not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_disk_that_refuses_the_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text((Path(__file__).parents[2] / "examples" / "add.py").read_text())
    (tmp_path / "file").write_text("")
    status, text = said(capsys, "compile", f"{tmp_path}/mine.py:add", "--out", f"{tmp_path}/file/below")
    assert (status, "ART010" in text) == (2, True)


def test_the_output_pipe_is_closed() -> None:
    with subprocess.Popen([*COMMAND, "explain"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == -signal.SIGPIPE
        assert process.stderr is not None
        assert process.stderr.read() == b""


def hears_interrupts() -> None:
    """Before a command starts: what runs in the background of a shell may ignore SIGINT, and so would the command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


INTERRUPTED = """
import os, signal, sys
class AsItLoads:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, AsItLoads())
sys.argv[1:] = ["show", "layout", "8:1"]
from tilewright_command import main
main()
"""


@pytest.mark.parametrize("name", ["tilewright", "tilewright.base.expr", "tilewright.cli.process", "typer"])
def test_an_interrupt_while_the_command_loads_is_quiet(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(name=name)],
        capture_output=True,
        check=False,
        preexec_fn=hears_interrupts,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_an_interrupt_of_a_command_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = run("check", f"{tmp_path}/stops.py:f", preexec_fn=hears_interrupts)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_crash_of_ours_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("here")

    monkeypatch.setattr(bundle, "read", crash)
    status, text = said(capsys, "show", "x")
    assert status == 70
    assert "tilewright failed, ZeroDivisionError: here" in text
    assert "TILEWRIGHT_TRACEBACK" in text
