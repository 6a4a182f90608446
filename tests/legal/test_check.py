"""``check_tensor_map`` and ``explain_tma``: the words and numbers a person gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tilewright.base.verdict import Legal, Repairs
from tilewright.diag import Severity, TilewrightError, render
from tilewright.hw.tensormap import Direction
from tilewright.legal.check import check_tensor_map
from tilewright.legal.explain import explain_tma

GOOD: dict[str, Any] = {
    "tensorDataType": 9,
    "tensorRank": 2,
    "globalAddress": 1 << 20,
    "globalDim": (4096, 4096),
    "globalStrides": (8192,),
    "boxDim": (64, 128),
    "elementStrides": (1, 1),
    "interleave": 0,
    "swizzle": 3,
    "l2Promotion": 2,
    "oobFill": 0,
}


def refused(**overrides: Any) -> TilewrightError:
    with pytest.raises(TilewrightError) as caught:
        check_tensor_map(**(GOOD | overrides))
    return caught.value


def test_a_good_request_passes_in_silence() -> None:
    assert check_tensor_map(**GOOD) == ()


def test_every_fault_is_reported_with_numbers_and_help() -> None:
    error = refused(globalStrides=(8200,), boxDim=(72, 300), globalAddress=(1 << 20) + 8)
    assert [d.code for d in error.diagnostics] == ["TMA010", "TMA012", "TMA016", "TMA019"]
    text = str(error)
    assert "8200" in text
    assert "strides of 8208 bytes" in text
    assert "2 boxes of 64 elements" in text
    assert "start 8 bytes earlier" in text


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"globalDim": (4096,)}, "TMA070"),
        ({"boxDim": (64,)}, "TMA070"),
        ({"tensorRank": 3}, "TMA070"),
        ({"boxDim": (64, -1)}, "TMA074"),
        ({"globalDim": (4096, 2**64)}, "TMA074"),
        ({"boxDim": (64, 2**32)}, "TMA074"),
        ({"arch": "sm_80"}, "TMA072"),
        ({"arch": "gfx942"}, "TMA072"),
        ({"tensorDataType": 13}, "TMA002"),
        ({"globalDim": (4096, 2**32 + 1)}, "TMA015"),
        ({"globalDim": (4096, 0)}, "TMA015"),
        ({"globalStrides": (2**40,)}, "TMA014"),
        ({"tensorMap": 32}, "TMA040"),
        ({"tensorRank": 0}, "TMA003"),
    ],
)
def test_bad_arguments_have_codes(overrides: dict[str, Any], code: str) -> None:
    assert code in [d.code for d in refused(**overrides).diagnostics]


def test_what_is_undocumented_is_a_warning() -> None:
    interleaved = {"tensorRank": 3, "globalDim": (64,) * 3, "globalStrides": (128, 8192), "elementStrides": (1,) * 3}
    interleaved |= {"tensorDataType": 7, "boxDim": (16, 1, 8), "interleave": 1, "swizzle": 0}
    (warning,) = check_tensor_map(**(GOOD | interleaved))
    assert warning.severity is Severity.WARNING
    assert warning.code == "TMA049"
    assert "execute" in warning.help
    repeats = check_tensor_map(**(GOOD | {"globalStrides": (0,)}))
    assert [w.code for w in repeats] == ["TMA045", "TMA044"]  # loads repeat, stores race
    (advice,) = check_tensor_map(**(GOOD | {"globalAddress": (1 << 20) + 16}))
    assert advice.code == "TMA050"
    assert render(advice).startswith("warning[TMA050]")


def test_copies_through_the_map_are_judged_with_it() -> None:
    assert check_tensor_map(**GOOD, startCoordinates=(8, -3), direction=Direction.LOAD) == ()
    late = refused(startCoordinates=(12, 0)).diagnostics[0]
    assert late.code == "TMA052"
    assert late.help == "begin at 8, a multiple of 8 elements, and skip 4"
    assert refused(startCoordinates=(0, -1), direction=Direction.STORE).diagnostics[0].code == "TMA042"
    assert refused(sharedAddress=64).diagnostics[0].code == "TMA041"
    assert refused(startCoordinates=(0,)).diagnostics[0].code == "TMA070"


def test_what_stores_must_not_do_is_a_warning_until_a_direction_is_given() -> None:
    ragged = GOOD | {"globalDim": (4093, 4096)}
    (warning,) = check_tensor_map(**ragged)
    assert (warning.code, warning.severity) == ("TMA053", Severity.WARNING)
    assert "5 last elements" in warning.help
    assert check_tensor_map(**ragged, direction=Direction.LOAD) == ()
    with pytest.raises(TilewrightError, match="TMA053"):
        check_tensor_map(**ragged, direction=Direction.STORE)


def test_the_explanation_of_an_unaligned_tensor() -> None:
    found = explain_tma((4100, 4100), "bf16", (128, 64))
    assert isinstance(found.verdict, Repairs)
    assert [d.code for d in found.diagnostics] == ["TMA012"]
    assert "error[TMA012]" in found.text
    assert "strides 4160 x 1 elements" in found.text
    record = json.loads(json.dumps(found.as_dict()))
    assert record["fields"]["global_strides"] == [8200]
    assert record["core"][0]["rule"] == "TMA012"
    assert record["repairs"]


def test_the_explanation_of_a_legal_map_shows_its_fields() -> None:
    found = explain_tma((4096, 4096), "torch.bfloat16", (128, 64))
    assert isinstance(found.verdict, Legal)
    assert found.repairs == ()
    assert "box_dim        [64, 128]" in found.text
    assert "B128" in found.text


def test_known_alignment_decides() -> None:
    assert isinstance(explain_tma((64, 64), "f16", (64, 64), address_align=16).verdict, Legal)
    assert [d.code for d in explain_tma((64, 64), "f16", (64, 64), address_align=8).diagnostics] == ["TMA010"]


def test_a_broadcast_row_is_a_legal_map() -> None:
    assert explain_tma((64, 64), "f16", (64, 64), strides=(0, 1)).legal


def test_a_strided_last_axis_is_named() -> None:
    found = explain_tma((64, 64), "f16", (64, 64), strides=(128, 2))
    assert "TMA060" in [d.code for d in found.diagnostics]


@pytest.mark.parametrize(("name", "help"), [("bf17", "bf16"), ("int4", "i8"), ("e2m1", "i8"), ("x", "integer type")])
def test_unknown_types_are_answered_with_one_to_write(name: str, help: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        explain_tma((64, 64), name, (64, 64))
    assert help in (caught.value.diagnostics[0].help or "")


@pytest.mark.parametrize(
    ("kwargs", "code"),
    [
        ({"dtype": "f12"}, "TMA071"),
        ({"arch": "sm_80"}, "TMA072"),
        ({"mode": "im2col"}, "TMA073"),
        ({"box": (64,)}, "TMA070"),
        ({"shape": (), "box": ()}, "TMA070"),
        ({"shape": (-1, 64)}, "TMA074"),
        ({"box": (64, 2**63)}, "TMA074"),
        ({"address_align": 0}, "TMA074"),
        ({"swizzle": "96B"}, "TMA006"),
    ],
)
def test_questions_that_make_no_request_have_codes(kwargs: dict[str, Any], code: str) -> None:
    question: dict[str, Any] = {"shape": (64, 64), "dtype": "bf16", "box": (64, 64)} | kwargs
    with pytest.raises(TilewrightError) as caught:
        explain_tma(**question)
    assert caught.value.code == code
    assert caught.value.diagnostics[0].help


def test_padded_rows_move_the_planes_apart() -> None:
    found = explain_tma((8, 50_000, 33), "bf16", (1, 64, 33))
    assert found.diagnostics[0].help == f"pad the rows: strides of 80, {80 * 50_000} bytes"


def test_a_fault_shows_the_dimensions_there_are() -> None:
    sizes = next(d for d in explain_tma((4096, 4096), "f16", (512, 512)).diagnostics if d.code == "TMA020")
    assert "box_dim_1 = 512" in sizes.found
    assert "box_dim_2" not in sizes.found


def test_no_threads_fill_a_tile_larger_than_shared_memory() -> None:
    assert not explain_tma((4096, 4096), "f16", (512, 512)).repairs
    assert explain_tma((4096, 4096), "f16", (512, 128)).repairs


def test_a_rank_too_high_is_folded_not_split() -> None:
    found = explain_tma((8,) * 4 + (64, 64), "f16", (1, 1, 1, 1, 64, 64))
    assert found.repairs[0].action == "fold axes that are only indexed: a map of 5 dimensions"
