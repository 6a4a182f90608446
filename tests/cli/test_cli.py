"""The command line, in process."""

from __future__ import annotations

import math
import operator
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import nvrtc
from typer.testing import CliRunner, Result

from support.artifacts import scale, staged
from support.gpu import gpu_present
from support.processes import run_python
from tilewright import Kernel
from tilewright.artifact import bundle
from tilewright.artifact.disassemble import code_bytes, sass
from tilewright.artifact.schema import MAX_EXTENT
from tilewright.cli.commands import app
from tilewright.cli.compile_ import find_kernel
from tilewright.cli.options import keyword_value
from tilewright.cli.run import extents_of, scalars_of
from tilewright.diag import TilewrightError
from tilewright.diag.catalogue import CATALOGUE
from tilewright.lang.schedule import Schedule

pytestmark = pytest.mark.sample(1)

KERNEL = """
from __future__ import annotations
import tilewright as tw
from helper import TIMES

@tw.kernel
def scale(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, alpha: tw.f32, causal=False, b=128):
    m, n = tw.grid(y, (None, 128))
    y[m, n] = x[m, n] * alpha * TIMES

other = 3
"""


def tilewright(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


def refused(code: str, *args: object) -> None:
    result = tilewright(*args)
    assert isinstance(result.exception, TilewrightError)
    assert result.exception.code == code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bundle.write_folder(scale(), tmp_path / "scale.bundle")
    return tmp_path / "scale.bundle"


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("TIMES = 2\n")
    (tmp_path / "mine.py").write_text(KERNEL)
    return tmp_path / "mine.py"


# -- compile ---------------------------------------------------------------------------------------------------------


def test_a_misspelt_pin_is_in_no_line_of_a_file(kernel_file: Path, tmp_path: Path) -> None:
    result = tilewright("compile", f"{kernel_file}:scale", "--schedule", "warp=4", "--out", tmp_path / "out")
    assert isinstance(result.exception, TilewrightError)
    (told,) = result.exception.diagnostics
    assert (told.code, told.where) == ("LNG027", None)
    assert "did you mean warps=?" in told.help


def test_compile_hands_everything_on(kernel_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def compile_(self: Kernel, **options: Any) -> Any:
        asked.append({"kernel": self.name, **options})
        return scale()

    monkeypatch.setattr(Kernel, "compile", compile_)
    out = tmp_path / "out"
    options = ["--static", "N=4096", "--dtype", "x=bf16", "--dtype", "y=f16", "--schedule", "warps=4"]
    result = tilewright(
        "compile", f"{kernel_file}:scale", *options, "--set", "causal=True", "--set", "b=64", "--out", out
    )
    assert result.exit_code == 0, result.output
    assert asked == [
        {
            "kernel": "scale",
            "target": "sm_90a",
            "static": {"N": 4096},
            "dtypes": {"x": "bf16", "y": "f16"},
            "schedule": Schedule(warps=4),
            "causal": True,
            "b": 64,
        }
    ]
    assert bundle.read(out) == scale()
    assert "2 obligation(s) proved" in result.output


@pytest.mark.parametrize("name", ["mine.py", "mine.py:nothing", "mine.py:other", "nowhere.py:scale", ":scale"])
def test_compile_needs_a_kernel(name: str, kernel_file: Path) -> None:
    refused("CMD001", "compile", f"{kernel_file.parent}/{name}", "--out", "out")


def test_a_file_that_raises(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import tilewright as tw\n\nx = [].nothing\n")
    refused("CMD007", "compile", f"{tmp_path / 'broken.py'}:x", "--out", "out")


@pytest.mark.parametrize("option", ["N", "N=", "=4", "N=x", "1N=4"])
def test_compile_options(option: str, kernel_file: Path) -> None:
    refused("CMD002", "compile", f"{kernel_file}:scale", "--static", option, "--out", "out")


@pytest.mark.parametrize("name", ["blok", "target", "schedule", "facts", "x"])
def test_an_unknown_keyword(name: str, kernel_file: Path) -> None:
    refused("CMD002", "compile", f"{kernel_file}:scale", "--set", f"{name}=1", "--out", "out")


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (True, "False", False),
        (1.5, "inf", math.inf),
        (1.5, "2", 2),
        ((1, 2), "(3, 4)", (3, 4)),
        ("a", "16", "16"),
        ("a", "None", None),
        (None, "b", "b"),
        (64, "None", None),
        (None, "[" * 5000, "[" * 5000),
    ],
)
def test_keywords_are_read_as_their_defaults_are(default: object, text: str, value: object) -> None:
    read = keyword_value("k", text, default)
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("default", "text"), [(True, "false"), (64, "x"), (1.5, "1,5x"), ((1, 2), "1;2"), (64, "-" * 99999)]
)
def test_a_text_is_no_number(default: object, text: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        keyword_value("k", text, default)
    (told,) = caught.value.diagnostics
    assert told.code == "CMD002"
    assert ("did you mean False?" in told.advice) == (text == "false")


def test_kernels_in_a_file_named_as_a_module_of_pythons(kernel_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "operator.py"
    path.write_text(kernel_file.read_text())
    assert find_kernel(f"{path}:scale").name == "scale"
    assert sys.modules["operator"] is operator


def test_an_option_given_twice(kernel_file: Path) -> None:
    refused("CMD002", "compile", f"{kernel_file}:scale", "--static", "N=1", "--static", "N=2", "--out", "out")


# -- show ------------------------------------------------------------------------------------------------------------


def test_show_plan_and_certificate(folder: Path) -> None:
    text = tilewright("show", folder, "--part", "plan", "--part", "certificate").output
    for part in ("scale for sm_90a", "nvrtc 13.0.88", "x: bf16[M, N], read", "N <= 4096", "narrow if N <= 128",
                 "scale_wide: 256 threads", "65536 bytes of shared", "two variants by row length",
                 "cover: proved by isl (every element once)"):  # fmt: skip
        assert part in text


def test_show_prints_a_summary_of_one_screen(folder: Path) -> None:
    lines = tilewright("show", folder).output.splitlines()
    assert lines[0] == "scale for sm_90a, schema 7"
    assert "2 variant(s), 2 fact(s) that a launch has to satisfy" in lines
    assert any("scale_wide: 256 threads" in line and line.endswith("2 proved") for line in lines)
    assert lines[-1] == "more with --part plan|source|ptx|sass|accesses|tile|transport|certificate"
    assert len(lines) < 25


@pytest.mark.parametrize(
    ("part", "text"),
    [("source", "// narrow"), ("ptx", ".version 9.0"), ("tile", "tile.func @scale"), ("transport", "transport")],
)
def test_show_parts(part: str, text: str, folder: Path) -> None:
    output = tilewright("show", folder, "--part", part).output
    assert text in output
    assert "==" not in output


def test_show_refuses_a_damaged_bundle(folder: Path) -> None:
    (folder / "scale_wide.cu").write_text("// wide\n// and more\n")
    refused("ART004", "show", folder)


def test_show_sass_of_what_is_no_cubin(folder: Path) -> None:
    refused("ART009", "show", folder, "--part", "sass")


def test_sass_of_a_cubin() -> None:
    source = b'extern "C" __global__ void k(float* p) { p[threadIdx.x] = 1.0f; }'
    _, program = nvrtc.nvrtcCreateProgram(source, b"k.cu", 0, [], [])
    assert int(nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_90a"])[0]) == 0
    cubin = bytearray(nvrtc.nvrtcGetCUBINSize(program)[1])
    nvrtc.nvrtcGetCUBIN(program, cubin)
    text = sass(bytes(cubin))
    assert "STG" in text
    assert code_bytes(bytes(cubin)) == 16 * len(re.findall(r"/\*[0-9a-f]{4,}\*/", text))  # 128 bits each


# -- explain ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(c for c in CATALOGUE if c[:3] in ("ART", "RUN", "CMD")))
def test_explain(code: str) -> None:
    output = tilewright("explain", code.lower()).output
    entry = CATALOGUE[code]
    assert output.startswith(f"{code}: {entry.title}")
    assert entry.why in output
    assert entry.bad
    assert entry.good


def test_explain_lists_and_suggests() -> None:
    output = tilewright("explain").output
    assert all(code in output for code in CATALOGUE)
    with pytest.raises(TilewrightError, match="RUN010"):
        raise tilewright("explain", "RUN10").exception or AssertionError
    refused("CMD003", "explain", "nonsense")


# -- run -------------------------------------------------------------------------------------------------------------


def test_extents_come_from_options_files_and_bounds() -> None:
    assert extents_of(scale(), {}, {}) == {"M": 1024, "N": 1024}
    assert extents_of(scale(), {"M": 3}, {"x": (3, 70)}) == {"M": 3, "N": 70}
    assert extents_of(staged(), {"N": 8}, {}) == {"M": 1024, "N": 8}
    with pytest.raises(TilewrightError, match="CMD002"):
        extents_of(scale(), {"K": 3}, {})


def test_scalars_have_their_type() -> None:
    assert scalars_of(scale(), {"alpha": "0.5"}) == {"alpha": 0.5, "n": 1}
    with pytest.raises(TilewrightError, match="CMD002"):
        scalars_of(scale(), {"n": "0.5"})


@pytest.mark.parametrize("extent", [-1, MAX_EXTENT + 1])
def test_run_extents_that_no_launch_takes(extent: int) -> None:
    extents_of(scale(), {"M": MAX_EXTENT}, {})
    with pytest.raises(TilewrightError, match="CMD002"):
        extents_of(scale(), {"M": extent}, {})


def test_run_inputs(folder: Path, tmp_path: Path) -> None:
    refused("CMD004", "run", folder, "--input", "z=z.npy")
    refused("CMD004", "run", folder, "--input", f"x={tmp_path / 'none.npy'}")
    (tmp_path / "x.npy").write_text("numbers")
    refused("CMD004", "run", folder, "--input", f"x={tmp_path / 'x.npy'}")


def _npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 an archive",
        _npy(b"(((((((\n"),
        _npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}\n"),
        _npy(b"{'descr': [('a',), 3], 'fortran_order': False, 'shape': (4,)}\n"),
    ],
)
def test_run_files_that_are_no_array(folder: Path, content: bytes, tmp_path: Path) -> None:
    """Empty, an archive's beginning, no header, more than memory holds, no dtype."""
    (tmp_path / "x.npy").write_bytes(content)
    refused("CMD004", "run", folder, "--input", f"x={tmp_path / 'x.npy'}")


def test_run_an_archive_of_arrays(folder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros(4, np.float32))
    refused("CMD004", "run", folder, "--input", f"x={tmp_path / 'x.npz'}")


@pytest.mark.skipif(gpu_present(), reason="a GPU is present")
def test_run_without_a_gpu(folder: Path) -> None:
    refused("RUN013", "run", folder)


# -- the process -----------------------------------------------------------------------------------------------------


def test_show_config_names_every_setting_and_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_STORE", "/a/store")
    file = tmp_path / "tilewright" / "config.toml"
    file.parent.mkdir()
    file.write_text("traceback = true\n")
    output = tilewright("show-config").output
    assert "store = /a/store  (environment)\n" in output
    assert f"traceback = 1  (file {file})\n" in output
    assert re.search(r"^shipped = .*ops.shipped  \(default\)$", output, re.MULTILINE)


@pytest.mark.parametrize(
    "text", ["stores = '/x'", "store = 3", "store = ''", "traceback = 1", "store", "[store]", "\0"]
)
def test_settings_that_cannot_be_read(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "tilewright").mkdir()
    (tmp_path / "tilewright" / "config.toml").write_text(text)
    refused("CMD008", "show-config")


@pytest.mark.parametrize("variable", ["TILEWRIGHT_VALIDATION", "TILEWRIGHT_TRACEBACK"])
@pytest.mark.parametrize("text", ["maybe", "\x1b[31m", "-1", "aheads"])
def test_variables_that_cannot_be_read(variable: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, text)
    refused("CMD008", "show-config")


def test_a_diagnostic_ends_on_stderr(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tilewright", "show", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[ART001]: not a Tilewright bundle")
    assert "tilewright explain ART001" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_quick() -> None:
    code = "import time; from tilewright.cli.commands import app; app(['--help'], standalone_mode=False); "
    code += "print(time.process_time())"
    assert "explain" in run_python(code)
    # processor time of the best of many processes, 0.28 s on an idle core: what else runs slows single ones
    assert any(float(run_python(code).split()[-1]) < 0.5 for _ in range(20))
