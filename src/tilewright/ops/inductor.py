"""Linear layers with what follows them as one operator, in graphs that ``torch.compile`` makes without gradients.

    torch.compile(model, options=inductor.options())

Inductor calls a product of cuBLAS and computes what follows in a kernel of its own. The pass here finds, in its graph
behind autograd,

    mm or addmm, an activation or none, a residual or none        (views of the rows between them)

and puts ``ops.linear`` there where that was measured to be faster. It belongs to the one call of ``torch.compile`` that
has the options: nothing global changes, and there is nothing to undo. A product that a backward reads, too, is left: in
training what needs none of it is replaced, a ReLU or a residual alone.
"""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module  # noqa: TID251 - PyTorch's compiler, which takes a second
from typing import Any

from tilewright.ops.functional import linears
from tilewright.ops.functional.arguments import LOW
from tilewright.ops.pytorch import torch
from tilewright.ops.registration import operators

_aten = torch.ops.aten
_LINEAR = next(op for op in operators() if op.name == "tilewright::linear")
_TILES = tuple(a.default for a in _LINEAR.signature.arguments[5:])
_PRODUCTS = (_aten.mm.default, _aten.addmm.default)
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)


@dataclass(frozen=True)
class Epilogue:
    """A product of rows x inner by inner x columns, and what follows it."""

    device: Any
    dtype: Any
    rows: int
    columns: int
    inner: int
    bias: bool
    activation: str
    residual: bool
    row_major: bool
    """Rows of x and of the weight, (columns, inner), are contiguous: not so of most products of a backward."""


def pays(found: Epilogue) -> bool:
    """Whether ``ops.linear`` is faster, by what was measured: any activation, with a residual or alone, of such rows
    (H200, ``benchmarks/epilogues.py``, docs/measured/pytorch.md)."""
    on_hopper = found.device.type == "cuda" and torch.cuda.get_device_capability(found.device) == (9, 0)
    return on_hopper and found.row_major


def options(pays: Callable[[Epilogue], bool] = pays) -> dict[str, Any]:
    """Options of ``torch.compile``; ``pays`` decides which products are replaced."""
    return {"post_grad_custom_pre_pass": _pass_class()(pays)}


@cache
def _pass_class() -> Any:
    """A subclass of Inductor's."""
    passes = import_module("torch._inductor.custom_graph_pass")

    class LinearEpilogues(passes.CustomGraphPass):
        def __init__(self, chosen: Callable[[Epilogue], bool]) -> None:
            self._pays = chosen
            self.replaced: list[Epilogue] = []

        def __call__(self, graph: Any) -> None:
            for node in list(graph.nodes):
                if node.op == "call_function" and node.target in _PRODUCTS:
                    self.replaced += _replace(graph, node, self._pays)

        def uuid(self) -> Any:
            """Of Inductor's cache: graphs depend on this file, on the activations and on how the operator is called,
            unless others choose."""
            if self._pays is not pays:
                return None
            return passes.get_hash_for_files((__file__, linears.__file__), str(_LINEAR.overload._schema))

    return LinearEpilogues


def _replace(graph: Any, product: Any, chosen: Callable[[Epilogue], bool]) -> list[Epilogue]:
    """Put the operator in place of a product and what follows it, and say of what; nothing if that does not pay."""
    bias, x, weight = (None, *product.args) if product.target is _PRODUCTS[0] else product.args
    value = product.meta["val"]
    rows, inner, columns = (_number(n) for n in (*x.meta["val"].shape, value.shape[1]))
    activation, activated = _activation_behind(_behind_views(product))
    residual, last = _residual_behind(activated)
    follows = activation != "none" or residual is not None
    made = last.meta["val"].shape
    by_rows = len(made) > 1 and made[-1] == columns  # a view that divides rows otherwise is none of the operator's
    biased = bias is None or tuple(bias.meta["val"].shape) == (columns,)
    fits = follows and by_rows and biased and not product.kwargs and value.dtype in LOW
    if not fits or rows is None or columns is None or inner is None or not isinstance(value.shape[1], int):
        return []
    follow = activation, residual is not None
    row_major = x.meta["val"].stride(1) == weight.meta["val"].stride(0) == 1
    found = Epilogue(value.device, value.dtype, rows, columns, inner, bias is not None, *follow, row_major)
    if not chosen(found):
        return []
    with graph.inserting_before(last), value.fake_mode:

        def put(target: Any, *args: Any) -> Any:
            node = graph.call_function(target, args)
            node.meta["val"] = target(*torch.fx.map_arg(args, lambda given: given.meta["val"]))
            return node

        flat = last.meta["val"].dim() == 2
        added = residual if flat or residual is None else put(_aten.reshape.default, residual, [-1, columns])
        turned = put(_aten.permute.default, weight, [1, 0])
        result = put(_LINEAR.overload, x, turned, bias, added, activation, *_TILES)
        last.replace_all_uses_with(result if flat else put(_aten.reshape.default, result, _shape_of(activated)))
    _erase(graph, product, last)
    return [found]


def _erase(graph: Any, first: Any, last: Any) -> None:
    """All from the first to the last, which nobody reads any more."""
    inside, behind = {first}, [first]
    for node in behind:
        behind += [user for user in ([] if node is last else node.users) if user not in inside]
        inside |= {*behind}
    for node in [n for n in reversed(graph.nodes) if n in inside]:
        graph.erase_node(node)


def _shape_of(node: Any) -> Any:
    """That of the last view among what the node is computed of, with the graph's own sizes."""
    while node.target not in _VIEWS:
        node = node.all_input_nodes[0]
    return node.args[1]


def _number(size: Any) -> int | None:
    """What a symbolic size was when the graph was made."""
    return size if isinstance(size, int) else size.node.hint if size.node.has_hint() else None


def _only_user(node: Any) -> Any:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _behind_views(node: Any) -> Any:
    """The node, or the last of the views of which each is all that reads the one before."""
    user = _only_user(node)
    return _behind_views(user) if user is not None and user.target in _VIEWS else node


def _activation_behind(node: Any) -> tuple[str, Any]:
    """The activation that alone reads the node, and its result; none, and the node."""
    reached, known = [node], {node}
    for each in reached:  # all that reads it, and what reads only that: an activation has at most eight nodes
        for user in each.users if len(reached) <= _MOST_NODES else ():
            if user not in known and all(a in known or a is node for a in user.all_input_nodes):
                known.add(user)
                reached.append(user)
    for activation, sought in _activations(node.meta["val"].dtype).items():
        for last in reached[1:]:
            matched: dict[Any, Any] = {}
            if _matches(last, sought, matched) and matched["z"] is node and _is_closed(last, matched):
                return activation, _behind_views(last)
    return "none", node


_MOST_NODES = 16


def _matches(found: Any, sought: Any, matched: dict[Any, Any]) -> bool:
    """Whether the node computes what the other of a traced function does; ``matched`` has the nodes by those."""
    if not isinstance(sought, torch.fx.Node):
        return type(found) is type(sought) and found == sought
    if sought.op == "placeholder":
        return matched.setdefault("z", found) is found
    if not isinstance(found, torch.fx.Node) or found.target != sought.target or found.kwargs != sought.kwargs:
        return False
    matched[sought] = found
    return len(found.args) == len(sought.args) and all(
        _matches(a, b, matched) for a, b in zip(found.args, sought.args, strict=True)
    )


def _is_closed(last: Any, matched: dict[Any, Any]) -> bool:
    """Nothing else reads what is replaced."""
    inside = set(matched.values())
    return all(set(node.users) <= inside for node in inside - {last})


@cache
def _activations(dtype: Any) -> dict[str, Any]:
    """The result's node of each activation, as Inductor decomposes it."""
    return {name: _traced(function, dtype) for name, function in linears.ACTIVATIONS.items() if name != "none"}


def _traced(function: Any, dtype: Any) -> Any:
    def computed(z: Any) -> Any:
        return function(z)

    table = import_module("torch._inductor.decomposition").select_decomp_table()
    make_fx = import_module("torch.fx.experimental.proxy_tensor").make_fx
    graph = make_fx(computed, decomposition_table=table)(torch.zeros(2, 2, dtype=dtype)).graph
    return next(iter(reversed(graph.nodes))).args[0]


def _residual_behind(node: Any) -> tuple[Any, Any]:
    """What alone is added to the node, and the sum; None, and the node."""
    user = _only_user(node)
    if user is None or user.target is not _aten.add.Tensor or user.kwargs:
        return None, node
    others = [a for a in user.args if a is not node]
    if len(others) != 1 or not isinstance(others[0], torch.fx.Node):
        return None, node
    a, b = (n.meta["val"] for n in (others[0], node))
    same = a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
    return (others[0], user) if same else (None, node)
