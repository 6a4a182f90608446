"""A decode layer's chain of kernels with programmatic dependent launch beside the same chain without.

    python benchmarks/dependent_launch.py --json benchmarks/results/dependent_launch.json

Four layers of Llama 3 8B, by `tilewright.ops` alone (norms, products, rotary with the writes to the cache, paged
attention, SwiGLU), in a CUDA graph for each way. All ways launch the same kernels, compiled with `griddepcontrol`, but
for edits of their CUDA text that are told beside each way. L2 flushed, order rotated, medians, a layer; every way must
give the bits of ``plain``, results poisoned before; errors of a layer against float64 beside PyTorch's own.
``--rounds 0`` compiles alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import Timer, document, greatest_error, relative_error, write
from layers import LLAMA, Cache, Layer, OfPyTorch, captured

CASES = ((1, 256), (1, 4096), (16, 1024), (64, 1024), (64, 4096))
"""Sequences, keys of each."""
LAYERS, GOAL = 4, 1.05
_RELEASE, _WAIT = (f'asm volatile("griddepcontrol.{do};" ::: "memory");' for do in ("launch_dependents", "wait"))
_FIRST = f"  {_WAIT}\n  {_RELEASE}\n"
"""What the compiler emits."""
_STREAM = re.compile(
    r"(?P<head>for \(int program = (?P<first>[^;]+); program < (?P<total>[^{]+?); program \+= \(int\)gridDim\.x\) \{"
    r"|const int program = (?P<only>[^;]+);\s*\{)\n(?P<place>(?: *const int [^\n]+\n)+?) *// tile\.stream[^\n]*\n"
    r"(?: *#pragma[^\n]*\n)? *for \(int k0 = 0; k0 < (?P<steps>[^;]+); \+\+k0\) \{\n(?P<body>.*?)\n *\}\n",
    re.DOTALL,
)
_WEIGHTS = re.compile(
    r"tma_load(?:_first)?_2d\((?P<to>[^;]*?), &(?P<map>v_b_map\d+), [^;]*?, (?P<at>[^,;]+, [^,;]+)\);"
)


# -- edits of CUDA text -----------------------------------------------------------------------------------------------
def is_product(source: str) -> bool:
    """Whether a kernel's producer streams weights that a linear layer calls b."""
    return _roles(source) is not None


def is_attention(source: str) -> bool:
    """Whether a kernel reads the cache."""
    return "kernel_paged_decode" in source


def _roles(source: str) -> tuple[str, str, str, re.Match[str], re.Match[str]] | None:
    """The text before the producer's role, the role, what is behind, its loop over K, and the load of weights."""
    begin, end = source.find("  // role producer\n"), source.find("  // role consumer")
    if begin < 0 or end < begin:
        return None
    role = source[begin:end]
    stream = _STREAM.search(role)
    weights = stream and _WEIGHTS.search(stream["body"])
    return (source[:begin], role, source[end:], stream, weights) if stream and weights else None


def waits_late(source: str) -> str:
    """Waits behind the initialisation of barriers, where there are some."""
    if "mbarrier_init(" not in source:
        return source
    head, behind = source.replace(_FIRST, "", 1).split("\n  __syncthreads();\n", 1)
    return f"{head}\n  __syncthreads();\n{_FIRST}{behind}"


def releases_behind(source: str) -> str:
    """Lets the next kernel begin at the end, a product when its loads are all issued."""
    source = source.replace(f"  {_RELEASE}\n", "", 1)
    found = _roles(source)
    if found is None:
        return f"{source.rstrip().removesuffix('}')}  {_RELEASE}\n}}\n"
    before, role, behind, *_ = found
    return before + role.replace("\n    }\n", f"\n      {_RELEASE}\n    }}\n", 1) + behind


def releases_first(source: str) -> str:
    """Lets the next kernel begin before it waits itself."""
    return source.replace(_FIRST, f"  {_RELEASE}\n  {_WAIT}\n", 1)


def releases_last(source: str) -> str:
    """Lets the next kernel begin at the end."""
    source = source.replace(f"  {_RELEASE}\n", "", 1)
    return f"{source.rstrip().removesuffix('}')}  {_RELEASE}\n}}\n"


def weights_ahead(source: str, *, shared: bool, most: int) -> str:
    """Fetches the weights of a product's first steps before it waits, to L2 or into their stages in shared memory."""
    found = _roles(source)
    if found is None:
        return source
    before, role, behind, stream, weights = found
    body = stream["body"]
    counter = re.search(r"(i_\w+) \+= 1;", body)
    expect = re.search(r"mbarrier_arrive_expect_tx\(.*\);", body)
    stages = re.search(r"\(i_\w+ ([%&]) (\d+)\)", body)
    if counter is None or expect is None or stages is None:
        return source
    room = int(stages[2]) + (stages[1] == "&")
    if shared:
        fetch = f"{expect[0]} {weights[0]}"
        late = body.replace(expect[0], f"if ({counter[1]} >= ahead) {expect[0]}")
        role = role.replace(body, late.replace(weights[0], f"if ({counter[1]} >= ahead) {weights[0]}"))
    else:
        x, y = weights["at"].split(", ")
        fetch = (
            'asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" :: '
            f'"l"(&{weights["map"]}), "r"((int)({x})), "r"((int)({y})) : "memory");'
        )
    then = _RELEASE if _FIRST in before else ""
    first, total = stream["first"] or stream["only"], stream["total"] or "program + 1"
    ahead = (
        f"int ahead = 0;\n{{ const int program = {first}; if (program < {total}) {{\n{stream['place']}"
        f"ahead = (int)({stream['steps']}); ahead = ahead < {min(most, room) if shared else most} ? ahead : "
        f"{min(most, room) if shared else most};\n#pragma unroll 1\nfor (int k0 = 0; k0 < ahead; ++k0) "
        f"{{ const int {counter[1]} = k0; (void){counter[1]}; {fetch} }} }} }}\n(void)ahead;\n{_WAIT}\n"
        f"{then}\n"
    )
    opening = re.search(r"\n *int i_\w+ = 0;\n", role)
    assert opening is not None
    role = role[: opening.end()] + ahead + role[opening.end() :]
    before = before.replace(_FIRST, "", 1).replace(f"  {_WAIT}\n", "", 1)
    behind = re.sub(r"(// role consumer[^\n]*\n[^\n]*\{\n)", lambda m: f"{m[1]}    {_WAIT}\n", behind)
    return before + role + behind


@dataclass(frozen=True)
class Way:
    """How the chain is launched: which kernels with the attribute, and their edited text."""

    name: str
    early: Callable[[str], bool] = lambda _: True
    edit: Callable[[str], str] = lambda source: source


_in_shared_memory = partial(weights_ahead, shared=True, most=99)


def first_but_attention(source: str) -> str:
    """Attention lets the next kernel begin behind its wait, others before."""
    return source if is_attention(source) else releases_first(source)


WAYS = (
    Way("plain", early=lambda _: False),
    Way("dependent"),
    Way("products alone", early=is_product),
    Way("all but products", early=lambda source: not is_product(source)),
    Way("released first", edit=releases_first),
    Way("released first but by attention", edit=first_but_attention),
    Way("released behind the loads", edit=releases_behind),
    Way("released last", edit=releases_last),
    Way("waits behind the barriers", edit=waits_late),
    Way("weights ahead to L2, 8 steps", edit=partial(weights_ahead, shared=False, most=8)),
    Way("weights ahead to L2, 24 steps", edit=partial(weights_ahead, shared=False, most=24)),
    Way("weights ahead in shared memory", edit=_in_shared_memory),
    Way(
        "so, others waiting behind the barriers", edit=lambda s: (_in_shared_memory if is_product(s) else waits_late)(s)
    ),
    Way("so, all released first", edit=lambda s: _in_shared_memory(releases_first(s))),
    Way("so, released first but by attention", edit=lambda s: _in_shared_memory(first_but_attention(s))),
    Way("so, all released behind the loads", edit=lambda s: _in_shared_memory(releases_behind(s))),
    Way("so, others released last", edit=lambda s: _in_shared_memory(s) if is_product(s) else releases_last(s)),
)


class Launches:
    """Stands between plans and the driver: a launch is that of the way at hand, whose kernel is made when needed."""

    def __init__(self) -> None:
        from tilewright.runtime import driver, plan

        self.way, self.image, self.edited = WAYS[0], None, set[tuple[str, str]]()
        self._kernels: dict[tuple[str, str], int] = {}
        prepare, prepared = driver.Driver.prepare, plan.LaunchPlan._prepare_launch

        def seen(made: Any, image: Any, step: Any, kernels: Any) -> None:
            self.image = image
            prepared(made, image, step, kernels)

        def switched(on: Any, kernel: int, shape: Any, parameters: int, context: int) -> Callable[[int], None]:
            image, ways = self.image, dict[str, Callable[[int], None]]()

            def launch(stream: int) -> None:
                way = self.way
                if way.name not in ways:
                    early = way.early(image.source) and "griddepcontrol.wait" in image.source
                    of = self._kernel(on, way, image, shape, kernel)
                    ways[way.name] = prepare(on, of, _with(shape, early), parameters, context)
                ways[way.name](stream)

            return launch

        plan.LaunchPlan._prepare_launch, driver.Driver.prepare = seen, switched  # type: ignore[method-assign]

    def _kernel(self, driver: Any, way: Way, image: Any, shape: Any, plain: int) -> int:
        from tilewright.codegen.assemble import compile_text

        source = way.edit(image.source)
        if source == image.source:
            return plain
        self.edited.add((way.name, image.symbol))
        key = way.name, image.source
        if key not in self._kernels:
            cubin = compile_text(source, "sm_90a", image.symbol)[1]
            self._kernels[key] = driver.kernel(driver.load_library(cubin), image.symbol, 0, shape)
        return self._kernels[key]


def _with(shape: Any, early: bool) -> Any:
    from dataclasses import replace

    return replace(shape, early=early)


# -- the chain --------------------------------------------------------------------------------------------------------
def step(ops: Any, layers: list[dict[str, Any]], x: Any, cos: Any, sin: Any, cache: Cache) -> Any:
    """A token of each sequence through all layers; x of (batch, model)."""
    s, k_cache, v_cache = LLAMA, cache.k_rows.view(cache.paged), cache.v_rows.view(cache.paged)
    for w in layers:
        y = ops.rms_norm(x, w["norm"])
        heads = ops.linear(y, w["qkv"]).view(len(x), -1, s.width)
        q, k, v = heads.split((s.heads, s.groups, s.groups), 1)
        q = ops.paged_append(k, v, k_cache, v_cache, cache.slots, cos=cos, sin=sin, query=q)
        y = ops.paged_decode(q, k_cache, v_cache, cache.table, cache.lengths).reshape(len(x), -1)
        y, x = ops.add_rms_norm(ops.linear(y, w["o"]), x, w["norm2"])
        gate, up = ops.linear(y, w["gate_up"]).chunk(2, -1)
        x = ops.linear(ops.swiglu(gate, up), w["down"], residual=x)
    return x


def wide(torch: Any, w: dict[str, Any], x: Any, cos: Any, sin: Any, cache: Cache, dtype: Any) -> Any:
    """One layer by PyTorch's functions in another dtype."""
    pieces, s = OfPyTorch(torch), LLAMA
    w, x, cos, sin = {n: t.to(dtype) for n, t in w.items()}, x.to(dtype), cos.to(dtype), sin.to(dtype)
    linear = torch.nn.functional.linear
    q, k, v = linear(pieces.norm(x, w["norm"]), w["qkv"]).view(1, len(x), -1, s.width).split(
        (s.heads, s.groups, s.groups), 2
    )  # fmt: skip
    q, k = pieces.rotary(q, cos, sin)[0], pieces.rotary(k, cos, sin)[0]
    found = []
    for i in range(len(x)):
        keys, values = cache.k[i].to(dtype).clone(), cache.v[i].to(dtype).clone()
        keys[:, -1], values[:, -1] = k[i], v[0, i]
        scores = torch.einsum("gqd,gtd->gqt", q[i].view(s.groups, -1, s.width), keys) * s.width**-0.5
        found.append((scores.softmax(-1) @ values).reshape(1, -1))
    y, x = pieces.add_norm(linear(torch.cat(found), w["o"]), x, w["norm2"])
    gate, up = linear(y, w["gate_up"]).chunk(2, -1)
    return x + linear(pieces.gated(gate, up), w["down"])


def one_layer(torch: Any, batch: int, tokens: int) -> Callable[[], Any]:
    """A call of one layer with its own weights and cache."""
    from tilewright import ops

    layer, cache = Layer(torch, LLAMA), Cache(torch, LLAMA, batch, tokens)
    x, (cos, sin), weights = (
        torch.randn(batch, LLAMA.model, device="cuda").bfloat16(),
        layer.angles(batch),
        layer.joined(),
    )
    return torch.no_grad()(lambda: step(ops, [weights], x, cos, sin, cache))


def measured(torch: Any, timer: Timer, launches: Launches, layers: Any, batch: int, tokens: int) -> dict[str, Any]:
    """Times of all ways, whether they give the same bits, and errors of one layer."""
    from tilewright import ops

    torch.manual_seed(batch + tokens)
    cache, x = Cache(torch, LLAMA, batch, tokens), torch.randn(batch, LLAMA.model, device="cuda").bfloat16()
    cos, sin = Layer.angles(layers[0], batch)
    weights = [layer.joined() for layer in layers]
    graphs, failed = dict[str, Any](), dict[str, str]()
    with torch.no_grad():
        for way in WAYS:
            launches.way = way
            try:
                graphs[way.name] = captured(torch, lambda: step(ops, weights, x, cos, sin, cache))
            except Exception as error:  # an edit that does not compile is a row too
                failed[way.name] = f"{type(error).__name__}: {str(error)[:300]}"
        launches.way = WAYS[0]
        one = step(ops, weights[:1], x, cos, sin, cache)
        exact = wide(torch, weights[0], x, cos, sin, cache, torch.float64)
        theirs = wide(torch, weights[0], x, cos, sin, cache, torch.bfloat16)
    if not timer.rounds or "plain" in failed:
        return {"case": f"decode chain {batch}x{tokens}", "failed": failed}
    bits = {}
    for name, (graph, result) in graphs.items():
        result.fill_(float("nan"))
        graph.replay()
        bits[name] = result.clone()
    seconds = timer.medians({name: graph.replay for name, (graph, _) in graphs.items()})
    us = {name: round(s * 1e6 / LAYERS, 2) for name, s in seconds.items()}
    return {
        "case": f"decode chain {batch}x{tokens}",
        "us_of_layer": us,
        "of_plain": {name: round(us["plain"] / t, 3) for name, t in us.items()},
        "same_bits": all(torch.equal(x, bits["plain"]) for x in bits.values()),
        "errors": {"ours": relative_error(one, exact), "pytorch": relative_error(theirs, exact)},
        "greatest_errors": {"ours": greatest_error(one, exact), "pytorch": greatest_error(theirs, exact)},
        "goal": GOAL,
        **({"failed": failed} if failed else {}),
    }


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", default="", help="cases whose name contains this")
    made.add_argument("--json", default="", help="where the document of the run goes")
    made.add_argument("--rounds", type=int, default=15)
    args = made.parse_args()
    os.environ["TILEWRIGHT_DEPENDENT"] = "1"
    os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")
    import torch

    launches, timer, rows = Launches(), Timer(torch, args.rounds), list[dict[str, Any]]()
    layers = [Layer(torch, LLAMA) for _ in range(LAYERS)]
    for batch, tokens in CASES:
        if args.only not in f"decode chain {batch}x{tokens}":
            continue
        rows.append(measured(torch, timer, launches, layers, batch, tokens))
        print(json.dumps(rows[-1]), flush=True)
        edited = {w.name: sorted(s for n, s in launches.edited if n == w.name) for w in WAYS}
        write(document(torch, **timer.conditions(), edited=edited, rows=rows), args.json)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
