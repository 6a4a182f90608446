"""``tilewright rules`` and ``tilewright explain tma``: what they print and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner, Result

from tilewright.cli.commands import app
from tilewright.diag import TilewrightError
from tilewright.legal import rules

MATRIX = ("explain", "tma", "--dtype", "bf16", "--box", "64x64")


def tilewright(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


def refused(code: str, *args: str) -> None:
    error = tilewright(*args).exception
    assert isinstance(error, TilewrightError)
    assert error.code == code


def test_all_rules_are_listed() -> None:
    output = tilewright("rules").output
    assert all(f"{rule.id}  " in output for rule in rules())
    assert f"{len(rules())} rules" in output


def test_rules_by_architecture_and_topic() -> None:
    lines = tilewright("rules", "--arch", "sm_90a", "--topic", "tensormap").output.splitlines()
    assert any(line.startswith("TMA012  driver rejects") for line in lines)
    assert not any(line.startswith(("TMA001", "WGM")) for line in lines)
    refused("CMD002", "rules", "--topic", "nothing")
    refused("TMA072", "rules", "--arch", "sm_80")


def test_a_rule_is_explained_with_its_predicate() -> None:
    output = tilewright("explain", "TMA012").output
    for part in ("TMA012: ", "global_stride % 16 == 0", "driver rejects", "documented", "source:", "good:"):
        assert part in output


def test_a_legal_map() -> None:
    result = tilewright(*MATRIX, "--shape", "4096x4096")
    assert result.exit_code == 0, result.output
    assert "tensor map on sm_90a: legal" in result.output
    assert "global_strides [8192] bytes" in result.output


def test_an_illegal_map_is_explained_and_repaired() -> None:
    result = tilewright(*MATRIX, "--shape", "4100x4100")
    assert result.exit_code == 1
    assert "error[TMA012]" in result.output
    assert "8200" in result.output
    assert "repairs" in result.output


def test_a_legal_map_states_the_limits_of_its_copies() -> None:
    output = tilewright(*MATRIX, "--shape", "4096x4096").output
    assert "begins at a multiple of 8 elements, at 1024 bytes" in output
    assert "completes 8192 bytes on its mbarrier" in output


def test_stores_are_judged_as_stores() -> None:
    ragged = (*MATRIX, "--shape", "4096x4090", "--strides", "4096x1")
    assert tilewright(*ragged).exit_code == 0
    stored = tilewright(*ragged, "--store", "--json")
    assert stored.exit_code == 1
    found = json.loads(stored.output)
    assert [entry["rule"] for entry in found["core"]] == ["TMA053"]
    assert found["direction"] == "store"


def test_prices_are_those_of_the_reuse_that_is_given() -> None:
    def staged(*options: str) -> tuple[str, float]:
        found = json.loads(tilewright(*MATRIX, "--shape", "4100x4100", "--json", *options).output)["repairs"]
        return found[0]["action"], next(r["seconds"] for r in found if "padded" in r["action"])

    assert staged("--reuse", "64")[1] < 10 * staged("--reuse", "1")[1]
    assert "padded" in staged("--reuse", "64")[0]
    assert "padded" not in staged("--reuse", "1")[0]
    refused("TMA074", *MATRIX, "--shape", "4100x4100", "--reuse", "0")


def test_json_has_the_same_contents() -> None:
    result = tilewright(*MATRIX, "--shape", "4100x4100", "--strides", "4104x1", "--swizzle", "128B", "--json")
    assert json.loads(result.output)["verdict"] == "Legal"
    result = tilewright(*MATRIX, "--shape", "4100x4100", "--address-align", "8", "--arch", "sm_90a", "--json")
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert {entry["rule"] for entry in found["core"]} == {"TMA010", "TMA012"}
    assert found["repairs"]
    assert found["fields"]["box_dim"] == [64, 64]


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("CMD002", ("--shape", "4096by4096")),
        ("TMA074", ("--shape", "64x64", "--box", "0x4")),
        ("CMD002", ("--shape", "4096x4096", "--strides", "x")),
        ("TMA070", ("--shape", "4096")),
        ("TMA006", ("--shape", "4096x4096", "--swizzle", "96B")),
        ("TMA072", ("--shape", "4096x4096", "--arch", "sm_70")),
        ("TMA074", ("--shape", "4096x4096", "--address-align", "0")),
    ],
)
def test_bad_arguments(code: str, options: tuple[str, ...]) -> None:
    refused(code, *MATRIX, *options)


def test_an_unknown_dtype() -> None:
    refused("TMA071", "explain", "tma", "--dtype", "f12", "--shape", "64x64", "--box", "64x64")


def test_help_loads_no_solver() -> None:
    code = "import sys; from tilewright.cli.commands import app; app(['--help'], standalone_mode=False); "
    code += "print([m for m in ('z3', 'egglog', 'tilewright.legal') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_wgmma_operand_shows_its_descriptor() -> None:
    result = tilewright("explain", "wgmma", "--tile", "128x64", "--dtype", "bf16")
    assert result.exit_code == 0, result.output
    assert "wgmma operand B of m64n128: legal" in result.output
    assert "[0, 32, 64, 96]" in result.output


def test_an_operand_that_is_none_is_explained_with_near_layouts() -> None:
    arguments = ("explain", "wgmma", "--tile", "64x128", "--dtype", "e4m3", "--major", "MN", "--swizzle", "64B")
    result = tilewright(*arguments, "--operand", "a")
    assert result.exit_code == 1
    assert "error[WGM007]" in result.output
    assert "lay the tile out K-major with swizzle" in result.output
    found = json.loads(tilewright(*arguments, "--json").output)
    assert [entry["rule"] for entry in found["core"]] == ["WGM007"]
    assert found["repairs"][0]["fields"]["transpose"] == 0
    typed = tilewright("explain", "wgmma", "--tile", "64x64", "--dtype", "bf16", "--accumulator", "f16")
    assert "wgmma operand B of m64n64: illegal\n" in typed.output


@pytest.mark.parametrize(
    ("tile", "options", "n", "code", "help"),
    [
        ("100x64", (), 96, "WGM017", "104 rows"),
        ("104x64", ("--n", "128"), 128, "WGM019", "an instruction of n = 104, or 128 columns"),
        ("56x64", ("--operand", "A"), 128, "WGM019", "64 rows"),
        ("104x64", (), 104, "", ""),
    ],
)
def test_a_tile_holds_what_the_instruction_reads(
    tile: str, options: tuple[str, ...], n: int, code: str, help: str
) -> None:
    result = tilewright("explain", "wgmma", "--tile", tile, "--dtype", "bf16", *options)
    assert f"of m64n{n}: {'illegal' if code else 'legal'}\n" in result.output
    assert (f"error[{code}]" in result.output and f"help: {help}\n" in result.output) or not code


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("CMD002", ("--tile", "128", "--dtype", "bf16")),
        ("CMD002", ("--tile", "128x64", "--dtype", "bf16", "--swizzle", "96B")),
        ("CMD002", ("--tile", "128x64", "--dtype", "bf16", "--major", "N")),
        ("TMA071", ("--tile", "128x64", "--dtype", "int4")),
        ("TMA070", ("--tile", "128x60", "--dtype", "bf16")),
    ],
)
def test_bad_operands_are_refused(code: str, options: tuple[str, ...]) -> None:
    refused(code, "explain", "wgmma", *options)
