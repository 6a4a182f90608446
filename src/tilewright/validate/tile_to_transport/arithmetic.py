"""What element-wise functions, reductions and conversions are on fingerprints: the written identities, and no other.

``docs/validation.md`` lists the identities. Integers are polynomials modulo 2**64. A float operation is a function of
its own; of a ``fast`` kernel, and of an ``accurate`` one that computes exponentials by base 2, it is arithmetic of
reals: where roundings may differ is left to the policy, which ``compiler.proofs.numerics`` enforces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.base.dtypes import DTYPES, DType
from tilewright.transport import dialect as t
from tilewright.transport.asynchronous import Wgmma
from tilewright.validate.tile_to_transport.fingerprints import (
    Fingerprints,
    Group,
    fingerprints,
    key,
    mix,
    term,
    unmix,
    unordered,
)
from tilewright.validate.undecided import Undecided

_F32 = DTYPES["f32"]
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453
_EXPONENT_BITS = {"f32": 8, "bf16": 8, "tf32": 8, "f16": 5, "e5m2": 5, "e4m3": 4}
_COMMUTATIVE = frozenset({"and", "or", "xor", "mul"})
_INVERTED = {"gt": "lt", "ge": "le"}


def constant(value: bool | int | float, dtype: DType) -> int:
    """A constant's fingerprint: an integer is itself, so are the floats 0, 1 and -1."""
    if dtype.is_bool:
        return key("bool", bool(value))
    if dtype.is_int:
        return int(value)
    number = float(value)
    if math.isnan(number):
        return key("nan")
    if number in (0.0, 1.0, -1.0):
        return key("-0.0") if number == 0 and math.copysign(1, number) < 0 else int(number)
    return key("float", abs(number)) * (1 if number > 0 else -1)


INFINITY = constant(math.inf, _F32)


def _lowest(dtype: DType) -> int:
    if dtype.is_float:
        return -INFINITY
    return constant(False, dtype) if dtype.is_bool else dtype.integers[0]


def _greatest(dtype: DType) -> int:
    if dtype.is_float:
        return INFINITY
    return constant(True, dtype) if dtype.is_bool else dtype.integers[1]


def _carrier(dtype: DType) -> DType:
    """In which narrow types are reduced."""
    return DTYPES["f32" if dtype.is_float else "i32"]


def of_reals(kernel: t.Kernel) -> bool:
    """Whether the kernel's policy let the compiler replace arithmetic, and it did.

    In an ``accurate`` kernel base 2 stands for other arithmetic; beside products on tensor cores an fma does.
    """
    policy = kernel.numerics.data
    if policy != "accurate":
        return policy == "fast"
    ops = list(kernel.walk())
    multiplies = any(isinstance(op, Wgmma) for op in ops)
    return any(isinstance(op, t.Approximate) or (multiplies and isinstance(op, t.Fma)) for op in ops)


class ElementFunctions:
    """The functions of one kernel: of ``reals``, or each with its rounding, but for ``a / b`` in ``accurate`` kernels,
    which is ``a * (1 / b)``."""

    def __init__(self, *, reals: bool, accurate: bool = False):
        self.reals, self.accurate = reals, accurate

    # -- groups -------------------------------------------------------------------------------------------------------
    def group(self, fn: str, dtype: DType) -> Group:
        """The operation of a reduction. Narrow types are reduced in f32 or i32, which have the same identities."""
        wide = dtype if dtype.is_bool or dtype.bits >= 32 else _carrier(dtype)
        match fn:
            case "sum" | "add":
                return Group("sum", 0, plain=self.reals or not dtype.is_float)
            case "max":
                return Group("max", _lowest(wide))
            case "min":
                return Group("min", _greatest(wide))
            case "mul" | "prod":
                return Group("product", 1)
            case _:
                raise Undecided(f"a reduction by {fn}")

    def factors(self, x: Fingerprints, dtype: DType = _F32) -> Fingerprints:
        """What of a factor enters a sum of products."""
        return x if self.reals or dtype.is_int else mix(x, key("factor"))

    def products(self, left: Fingerprints, right: Fingerprints, weights: Fingerprints, dtype: DType) -> Fingerprints:
        """Images of ``left @ right.T``, of which each step along k has a weight.

        0 times 0 adds nothing. 0 times anything else does, for that may be NaN or infinite.
        """
        a, b = self.factors(left, dtype), self.factors(right, dtype)
        weights = np.broadcast_to(weights, a.shape)
        return np.matmul(a * weights, b.T) - self._nothing(dtype) * weights.sum(1, keepdims=True, dtype=np.uint64)

    def _nothing(self, dtype: DType) -> Fingerprints:
        """The image of 0 times 0, before it is taken away."""
        zero = self.factors(fingerprints(0), dtype)
        return zero * zero

    def between(self, kind: DType, factor: Fingerprints, inside: Fingerprints, beyond: Fingerprints) -> Fingerprints:
        """``inside`` where bounds hold, of which ``factor`` is the weight, else ``beyond``: a sum of both."""
        group = self.group("sum", kind) if not kind.is_bool else Group("truth", 0)
        x, y = group.into(inside), group.into(beyond)
        return group.back(y + factor * (x - y))

    def fma(
        self, a: Fingerprints, b: Fingerprints, c: Fingerprints, factor: Fingerprints | None = None
    ) -> Fingerprints:
        """``a * b + c``, rounded once, as a product of matrices adds up its terms; both factors are 0 but where bounds
        hold of which ``factor`` is the weight."""
        total = self.group("sum", _F32)
        product = self.factors(a) * self.factors(b) - self._nothing(_F32)
        return total.back((product if factor is None else product * factor) + total.into(c))

    def fused(self, a: Fingerprints, b: Fingerprints, c: Fingerprints) -> Fingerprints:
        """``a * b + c`` that the program rounds once."""
        return a * b + c if self.reals else term("fma", unordered("factors", a, b), c)

    # -- element-wise functions ---------------------------------------------------------------------------------------
    def unary(self, fn: str, x: Fingerprints, dtype: DType) -> Fingerprints:
        """``fn`` of elements; narrow floats are computed in f32 and rounded."""
        return self._rounded(self._unary(fn, x, dtype).reshape(x.shape), dtype)

    def _unary(self, fn: str, x: Fingerprints, dtype: DType) -> Fingerprints:
        if fn == "neg" and (self.reals if dtype.is_float else dtype.bits >= 32):
            return np.uint64(0) - x
        if self.reals and dtype.is_float:
            match fn:
                case "exp":
                    return self.approximate("ex2", x * fingerprints(constant(_LOG2_E, _F32)))
                case "exp2":
                    return self.approximate("ex2", x)
                case "log":
                    return self.approximate("lg2", x) * fingerprints(constant(_LN_2, _F32))
                case "log2":
                    return self.approximate("lg2", x)
                case "sigmoid":
                    power = self.approximate("ex2", x * fingerprints(constant(-_LOG2_E, _F32)))
                    return self.approximate("rcp", power + np.uint64(1))
                case _:
                    pass
        return term((fn, *_format(dtype)), x)

    def approximate(self, fn: str, x: Fingerprints) -> Fingerprints:
        """A function of f32 by one instruction."""
        return term(("approximate", fn), x)

    def binary(self, fn: str, a: Fingerprints, b: Fingerprints, dtype: DType) -> Fingerprints:
        """``fn`` of two elements; narrow floats are computed in f32 and rounded."""
        return self._rounded(self._binary(fn, a, b, dtype), dtype)

    def _binary(self, fn: str, a: Fingerprints, b: Fingerprints, dtype: DType) -> Fingerprints:
        if fn in ("add", "max", "min") and not (dtype.is_int and dtype.bits < 32):
            return self.group(fn, dtype)(a, b)
        if (dtype.is_int and dtype.bits >= 32) or (self.reals and dtype.is_float):
            match fn:
                case "sub":
                    return a - b
                case "mul":
                    return a * b
                case "div" if dtype.is_float:
                    return a * self.approximate("rcp", b)
                case _:
                    pass
        name = (fn, *_format(dtype))
        if self.accurate and fn == "div" and dtype.is_float:
            inverse = term(name, np.full_like(b, 1), b)
            return np.where(a == np.uint64(1), inverse, self._binary("mul", a, inverse, dtype))
        commutes = fn in _COMMUTATIVE or fn in ("add", "max", "min")
        return unordered(name, a, b) if commutes else term(name, a, b)

    def narrowed(self, x: Fingerprints, dtype: DType) -> Fingerprints:
        """The result of a reduction that was carried in f32 or i32, in its own type."""
        if dtype.is_bool or dtype.bits >= 32:
            return x
        return self.cast(x, _carrier(dtype), dtype)

    def _rounded(self, x: Fingerprints, dtype: DType) -> Fingerprints:
        return self.cast(x, _F32, dtype) if dtype.is_float and dtype.bits < 32 else x

    def compare(self, fn: str, a: Fingerprints, b: Fingerprints, dtype: DType) -> Fingerprints:
        """A bool: ``a > b`` is ``b < a``."""
        if fn in _INVERTED:
            fn, a, b = _INVERTED[fn], b, a
        name = ("compare", fn, dtype.is_float, dtype.signed)
        return unordered(name, a, b) if fn in ("eq", "ne") else term(name, a, b)

    def select(self, condition: Fingerprints, a: Fingerprints, b: Fingerprints) -> Fingerprints:
        """``a`` where a condition on data holds, else ``b``; what is the same on both sides is that."""
        return np.where(a == b, a, term("select", condition, a, b))

    def cast(self, x: Fingerprints, source: DType, target: DType) -> Fingerprints:
        """A conversion: none where every value is representable, and 0 and infinities stay what they are."""
        if source == target or is_exact(source, target):
            return x
        if target.is_float and source.is_int and target != _F32:
            return self.cast(self.cast(x, source, _F32), _F32, target)  # integers go to every float through f32
        result = mix(x, key("cast", target.name, _format(source)))
        if target.is_bool or source.is_bool:
            return result
        kept = x == np.uint64(0)
        if source.is_float and target.is_float and target.name != "e4m3" and target.name != "e5m2":
            kept = kept | (x == fingerprints(INFINITY)) | (x == fingerprints(-INFINITY))
        return np.where(kept, x, result)


def is_exact(source: DType, target: DType) -> bool:
    """Every value of ``source`` is one of ``target``, and its terms stand for values: those of 32 bits and more are
    polynomials that wrap."""
    if source.is_float and target.is_float:
        wider = _EXPONENT_BITS[source.name] <= _EXPONENT_BITS[target.name] and source.digits <= target.digits
        return wider and (source.name, target.name) != ("e4m3", "e5m2")
    return source.is_int and target.is_int and source.bits < 32 and target.holds(source)


def _format(dtype: DType) -> tuple[bool, int, bool]:
    """The key by which functions of different dtypes are distinguished: floats are computed in f32."""
    return dtype.is_float, 0 if dtype.is_float else dtype.bits, dtype.signed


class Combined:
    """What a reduction combines: one value, or for ``argmax`` a value and its index, of equal values the lower index.

    Images of several add up. That of a pair is a bijection of ``value * odd + index``, so that the index is found from
    the sum of images and the greatest value; that of the lowest value with the greatest index is 0.
    """

    _odd = np.uint64(key("value of a pair"))
    _key = key("pair")

    def __init__(self, arithmetic: ElementFunctions, fn: str, dtype: DType):
        self.pairs = fn == "argmax"
        self.group = arithmetic.group("max" if self.pairs else fn, dtype)
        lowest = fingerprints(self.group.identity) * self._odd + fingerprints((1 << 31) - 1)
        self._offset = mix(lowest, self._key)

    def into(self, values: Sequence[Fingerprints]) -> list[Fingerprints]:
        """Images: of the values, and of pairs."""
        images = [self.group.into(values[0])]
        if self.pairs:
            images.append(mix(values[0] * self._odd + values[1], self._key) - self._offset)
        return images

    def back(self, images: Sequence[Fingerprints]) -> list[Fingerprints]:
        """Values, of images."""
        values = [self.group.back(images[0])]
        if self.pairs:
            values.append(unmix(images[1] + self._offset, self._key) - values[0] * self._odd)
        return values
