"""What a pack plan serves beside experts: embedding bags, updates of some rows of a table, keys that are kept.

Each is a plan, and rows that move by it. Sums go in the order of the indices: the same bits in every run."""

from typing import Annotated, Any

import tilewright as tw


@tw.kernel
def add_sums(
    offsets: Annotated[tw.Tensor, "G + 1"],
    pairs: Annotated[tw.Tensor, "P"],
    row: Annotated[tw.Tensor, "N"],
    weight: Annotated[tw.Tensor, "N"],
    x: Annotated[tw.Tensor, "R", "D"],
    y: Annotated[tw.Tensor, "G", "D"],
    *,
    bd: int = 128,
):
    """y[g] += the sum of weight[i] * x[row[i]] over the indices i of bucket g, 16 at a time."""
    g, d = tw.grid(y, (None, bd))
    total = tw.zeros((d,), tw.f32)
    for p in tw.stream(pairs.shape[0], 16, start=offsets[g], until=offsets[g + 1]):
        i = pairs[p]
        total += (x[row[i], d].to(tw.f32).fill(0.0) * weight[i].to(tw.f32).fill(0.0)[:, None]).sum(0)
    y[g, d] = y[g, d].to(tw.f32) + total


def embedding_bags(table: Any, row: Any, weight: Any, bag: Any, out: Any) -> None:
    """out[b] += the weighed sum of the rows of ``table`` that lie in bag b: ``row``, ``weight`` and ``bag`` of
    (items,), in any order; an item of bag -1 is in none."""
    plan = tw.build_pack_plan(bag, out.shape[0])
    add_sums(plan.offsets, plan.pairs, row, weight, table, out)


def update_rows(table: Any, index: Any, scale: Any, gradient: Any, position: Any) -> None:
    """table[index[i]] += scale[i] * gradient[i], where an index may come often; ``position`` counts from 0. One program
    has all the gradients of a row, so none is lost."""
    plan = tw.build_pack_plan(index, table.shape[0])
    add_sums(plan.offsets, plan.pairs, position, scale, gradient, table)


def compacted(cache: Any, sequence: Any, sequences: int, page: int) -> tuple[Any, Any]:
    """(pages, plan): the rows of ``cache`` that are kept, in their order, each sequence from a page of its own on.
    ``sequence`` says whose each row is, -1 where it is evicted; ``plan.blocks`` is the sequence of each page, and
    ``plan.kept`` counts a sequence's rows."""
    plan = tw.build_pack_plan(sequence, sequences, tw.PackPolicy(align=page))
    return tw.pack(plan, cache), plan
