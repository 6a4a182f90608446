"""Suggested changes to a tensor map that breaks a rule; rules without a case here show the catalogue's good example."""

from __future__ import annotations

from tilewright.diag.catalogue import CATALOGUE
from tilewright.hw.tensormap import ELEMENT_BITS, MAX_EXTENT, SWIZZLE_SPAN_BYTES
from tilewright.legal.tensormap import TensorMapRequest


def help_for(rule: str, request: TensorMapRequest) -> str:
    """The suggested change, with the request's own numbers where they help."""
    kind, swizzle = request.tensor_data_type, request.swizzle
    bits = ELEMENT_BITS[kind] if 0 <= kind < len(ELEMENT_BITS) else 8
    inner = request.box_dim[0] if request.box_dim else 1
    match rule:
        case "TMA010":
            return (
                f"start {request.global_address % 16} bytes earlier and shift the coordinates, or copy the head apart"
            )
        case "TMA012":
            return f"pad the rows: strides of {', '.join(map(str, _padded_strides(request)))} bytes"
        case "TMA015" if any(n > MAX_EXTENT for n in request.global_dim):
            return "view the long axis as two, of which the inner one has fewer than 2^32 elements"
        case "TMA016":
            parts = ", ".join(str(-(-b // 256)) for b in request.box_dim)
            return f"issue several copies: {parts} boxes along the dimensions"
        case "TMA018" | "TMA022":
            return f"a box of {-(-inner * bits // 128) * 128 // bits} elements; the extra ones are loaded and ignored"
        case "TMA019":
            span = SWIZZLE_SPAN_BYTES[swizzle] * 8 // bits
            return f"{-(-inner // span)} boxes of {span} elements, panel after panel in shared memory"
        case "TMA052":
            unit = max(128 // bits, 1)
            first = request.start_coordinates[0]
            return f"begin at {first // unit * unit}, a multiple of {unit} elements, and skip {first % unit}"
        case "TMA053":
            unit = max(128 // bits, 1)
            return (
                f"store the {request.global_dim[0] % unit} last elements of each row by threads, or own 16 bytes more"
            )
        case _:
            return f"for example: {CATALOGUE[rule].good}"


def _padded_strides(request: TensorMapRequest) -> tuple[int, ...]:
    """The byte strides rounded up to multiples of 16; an outer stride also grows with the inner ones."""
    padded: list[int] = []
    for i, stride in enumerate(request.global_strides):
        inner = request.global_strides[i - 1] * request.global_dim[i] if i else 0
        least = padded[-1] * request.global_dim[i] if i and stride >= inner else 0
        padded.append(-(-max(stride, least) // 16) * 16)
    return tuple(padded)
