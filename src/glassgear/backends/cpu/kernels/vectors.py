"""Vectors of 16 lanes, memory by address, and atomics, as Numba sees them.

Numba has no vector types of its own. The two here, 16 floats and 16 integers, are LLVM
vectors: one AVX-512 register, two of AVX2, four of NEON; LLVM splits them as the machine needs.
Addresses are int64 and count bytes. No operation assumes that floats are finite.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

__all__ = [
    "LANES",
    "absolute_bits",
    "add_atomic",
    "as_floats",
    "as_integers",
    "at",
    "exp",
    "exp2",
    "first_lane",
    "fma",
    "get_f32",
    "get_i64",
    "hidden",
    "inside",
    "largest",
    "largest_bits",
    "largest_magnitude",
    "load16",
    "load_atomic",
    "load_half",
    "maximum",
    "narrow8",
    "narrow16",
    "nearest",
    "nearest_codes",
    "prefetch",
    "put_f32",
    "put_half",
    "put_i32",
    "put_i64",
    "scatter16",
    "scatter_pairs",
    "splat",
    "store16",
    "store_atomic",
    "store_half16",
    "stream16",
    "sum16",
    "sum_integers",
    "swap_atomic",
    "to_floats",
    "visible",
    "where_below",
]  # fmt: skip

LANES = 16
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F16 = ir.FloatType(), ir.HalfType()
V_F32, V_I32, V_F16 = (ir.VectorType(t, LANES) for t in (F32, I32, F16))


class VectorType(types.Type):
    """Sixteen values of one kind."""

    def __init__(self, name: str, backing: ir.Type) -> None:
        self.backing = backing
        super().__init__(name=name)


floats = VectorType("floats16", V_F32)
integers = VectorType("integers16", V_I32)


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, kind.backing)


def _operator(function: Any, emit: str) -> None:
    @infer_global(function)
    class Template(AbstractTemplate):
        def generic(self, arguments: Any, keywords: Any) -> Any:
            return signature(floats, *arguments) if tuple(arguments) == (floats, floats) else None

    @lower_builtin(function, floats, floats)
    def lower(context: Any, b: Any, sig: Any, arguments: Any) -> Any:
        return getattr(b, emit)(*arguments)


for _function, _emit in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"),
                         (operator.truediv, "fdiv")):  # fmt: skip
    _operator(_function, _emit)


# --- what other generators of code share -----------------------------------------------------


def call(b: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Call an LLVM intrinsic by its full name."""
    kind = ir.FunctionType(result, [a.type for a in arguments])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    return b.call(function, arguments)


def emit_fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """X * y + z, rounded once where the machine has such an instruction."""
    name = "llvm.fmuladd.v16f32" if isinstance(x.type, ir.VectorType) else "llvm.fmuladd.f32"
    return call(b, name, x.type, [x, y, z])


def emit_splat(b: Any, value: Any) -> Any:
    """A scalar in all lanes."""
    kind = ir.VectorType(value.type, LANES)
    one = b.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return b.shuffle_vector(one, one, ir.Constant(V_I32, [0] * LANES))


def constant(value: float) -> Any:
    """A float in all lanes."""
    return ir.Constant(V_F32, [value] * LANES)


def integer(value: int) -> Any:
    """An int32 in all lanes."""
    return ir.Constant(V_I32, [value] * LANES)


def place(b: Any, address: Any, kind: Any, offset: int = 0) -> Any:
    """A pointer to `kind`, `offset` bytes past an address."""
    base = b.inttoptr(address, ir.PointerType(I8))
    if offset:
        base = b.gep(base, [ir.Constant(I64, offset)], source_etype=I8)
    return b.bitcast(base, ir.PointerType(kind))


def emit_load(b: Any, address: Any, kind: Any, offset: int = 0) -> Any:
    """Load without assuming any alignment."""
    return b.load(place(b, address, kind, offset), align=1, typ=kind)


def emit_store(b: Any, value: Any, address: Any, offset: int = 0) -> None:
    """Store without assuming any alignment."""
    b.store(value, place(b, address, value.type, offset), align=1)


def emit_stream(b: Any, value: Any, address: Any) -> None:
    """Store 64 bytes to an address that divides by 64, past the caches: it won't be read soon."""
    stored = b.store(value, place(b, address, value.type), align=64)
    stored.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(I32, 1)]))


def emit_prefetch(b: Any, address: Any, offset: int, locality: int = 0) -> None:
    """Ask for a cache line.

    `locality` as in LLVM. 0: it will be read once, and shouldn't push out what is used again.
    2: into the second-level cache, which can wait for more lines at a time than the first.
    """
    pointer = place(b, address, I8, offset)
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
    name = "llvm.prefetch.p0"
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    b.call(function, [pointer, *(ir.Constant(I32, v) for v in (0, locality, 1))])


def _simple(result: Any, parameters: tuple[Any, ...], emit: Callable[..., Any]) -> Any:
    """An intrinsic of fixed types; `emit(builder, *values)` gives its value."""

    def typed(typingctx: Any, *arguments: Any) -> Any:
        def codegen(context: Any, b: Any, sig: Any, values: Any) -> Any:
            out = emit(b, *values)
            return context.get_dummy_value() if result is types.void else out

        return result(*parameters), codegen

    # Numba reads the number of arguments off the signature, so each count has its own wrapper.
    names = ", ".join(f"a{i}" for i in range(len(parameters)))
    scope: dict[str, Any] = {"typed": typed}
    exec(
        f"def made(typingctx, {names}): return typed(typingctx, {names})",
        scope,
    )
    return intrinsic(scope["made"])


# --- memory ----------------------------------------------------------------------------------

i64, f32 = types.int64, types.float32
load16 = _simple(floats, (i64,), lambda b, a: emit_load(b, a, V_F32))
store16 = _simple(types.void, (i64, floats), lambda b, a, v: emit_store(b, v, a))
stream16 = _simple(types.void, (i64, floats), lambda b, a, v: emit_stream(b, v, a))
load_half = _simple(floats, (i64,), lambda b, a: b.fpext(emit_load(b, a, V_F16), V_F32))
get_f32 = _simple(f32, (i64,), lambda b, a: emit_load(b, a, F32))
put_f32 = _simple(types.void, (i64, f32), lambda b, a, v: emit_store(b, v, a))
get_i64 = _simple(i64, (i64,), lambda b, a: emit_load(b, a, I64))
put_i64 = _simple(types.void, (i64, i64), lambda b, a, v: emit_store(b, v, a))
put_i32 = _simple(types.void, (i64, types.int32), lambda b, a, v: emit_store(b, v, a))
prefetch = _simple(types.void, (i64,), lambda b, a: emit_prefetch(b, a, 0, 2))
put_half = _simple(types.void, (i64, f32), lambda b, a, v: emit_store(b, b.fptrunc(v, F16), a))
# The int64 field number `field` of a record.
at = _simple(
    i64, (i64, i64), lambda b, base, field: emit_load(b, b.add(base, b.shl(field, ir.Constant(I64, 3))), I64)
)
store_half16 = _simple(types.void, (i64, floats), lambda b, a, v: emit_store(b, b.fptrunc(v, V_F16), a))


# --- arithmetic ------------------------------------------------------------------------------

first_lane = _simple(f32, (floats,), lambda b, v: b.extract_element(v, ir.Constant(I32, 0)))
splat = _simple(floats, (f32,), emit_splat)
fma = _simple(floats, (floats, floats, floats), emit_fma)
to_floats = _simple(floats, (integers,), lambda b, v: b.sitofp(v, V_F32))
as_integers = _simple(integers, (floats,), lambda b, v: b.bitcast(v, V_I32))
as_floats = _simple(floats, (integers,), lambda b, v: b.bitcast(v, V_F32))
# |x| as its bits: they order like the numbers, with NaN above everything.
absolute_bits = _simple(integers, (floats,), lambda b, v: b.and_(b.bitcast(v, V_I32), integer(0x7FFFFFFF)))


def _larger_integer(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed(">", x, y), x, y)


def _larger(b: Any, x: Any, y: Any) -> Any:
    # A NaN in x survives, one in y is lost: it comes back through the exponential of its score.
    return b.select(b.fcmp_ordered(">", y, x), y, x)


largest_bits = _simple(integers, (integers, integers), _larger_integer)
maximum = _simple(floats, (floats, floats), _larger)


def _folded(b: Any, v: Any, join: Callable[[Any, Any, Any], Any]) -> Any:
    """Reduce 16 lanes in a fixed tree: halves against halves, in ever shorter vectors."""
    width = LANES
    while width > 1:
        width //= 2
        kind = ir.VectorType(I32, width)
        low, high = (
            b.shuffle_vector(v, v, ir.Constant(kind, list(range(start, start + width))))
            for start in (0, width)
        )
        v = join(b, low, high)
    return b.extract_element(v, ir.Constant(I32, 0))


sum16 = _simple(f32, (floats,), lambda b, v: _folded(b, v, lambda b, x, y: b.fadd(x, y)))
sum_integers = _simple(types.int32, (integers,), lambda b, v: _folded(b, v, lambda b, x, y: b.add(x, y)))
largest = _simple(f32, (floats,), lambda b, v: _folded(b, v, _larger))
_bits_of_largest = lambda b, v: b.bitcast(_folded(b, v, _larger_integer), F32)  # noqa: E731
largest_magnitude = _simple(f32, (integers,), _bits_of_largest)

_MAGIC = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits


def _nearest(b: Any, v: Any) -> Any:
    """The nearest integer, ties to even, for |v| < 2^22; of NaN some integer."""
    shifted = b.bitcast(b.fadd(v, constant(_MAGIC)), V_I32)
    return b.sub(shifted, ir.Constant(V_I32, [0x4B400000] * LANES))


nearest = _simple(integers, (floats,), _nearest)


def emit_exp(b: Any, x: Any) -> Any:
    """e^x to 2 ulp in 16 lanes; below -87.3 it is 0, above 88 it is e^88 = 1.65e38; NaN stays NaN.

    2^n times a polynomial in the rest, |rest| <= ln(2)/2, fitted to a relative error of 1.1e-7.
    """
    low, high = constant(-87.33654), constant(88.0)
    inside = b.select(b.fcmp_ordered("<", high, x), high, x)
    # The biased exponent of 2^n comes out in the low bits, ready to be shifted into place.
    shifted = emit_fma(b, inside, constant(1.44269504088896341), constant(_MAGIC + 127))
    whole = b.fsub(shifted, constant(_MAGIC + 127))
    rest = emit_fma(b, whole, constant(-0.693359375), inside)
    rest = emit_fma(b, whole, constant(2.12194440e-4), rest)
    y = constant(0.008312468884930611)
    for c in (0.04189056213642582, 0.16667116464871137, 0.49999228716613486):
        y = emit_fma(b, y, rest, constant(c))
    y = emit_fma(b, b.fmul(y, rest), rest, b.fadd(rest, constant(1.0)))
    y = b.fmul(y, b.bitcast(b.shl(b.bitcast(shifted, V_I32), integer(23)), V_F32))
    return b.select(b.fcmp_ordered("<", x, low), constant(0.0), y)


exp = _simple(floats, (floats,), emit_exp)


def _narrow8(b: Any, address: Any, v: Any) -> None:
    emit_store(b, b.trunc(v, ir.VectorType(I8, LANES)), address)


narrow8 = _simple(types.void, (i64, integers), _narrow8)  # store the low byte of each lane


def _lanes16(b: Any, v: Any) -> Any:
    return b.trunc(v, ir.VectorType(I16, LANES))


def _scattered(b: Any, address: Any, stride: Any, v: Any) -> None:
    """Store each lane `stride` bytes behind the one before."""
    for lane in range(v.type.count):
        emit_store(b, b.extract_element(v, ir.Constant(I32, lane)), address)
        address = b.add(address, stride)


def _scatter_pairs(b: Any, address: Any, stride: Any, v: Any) -> None:
    _scattered(b, address, stride, b.bitcast(_lanes16(b, v), ir.VectorType(I32, LANES // 2)))


# Of the low 16 bits of each lane: store them; store each, or each two, `stride` bytes apart.
narrow16 = _simple(types.void, (i64, integers), lambda b, a, v: emit_store(b, _lanes16(b, v), a))
scatter16 = _simple(types.void, (i64, i64, integers), lambda b, a, s, v: _scattered(b, a, s, _lanes16(b, v)))
scatter_pairs = _simple(types.void, (i64, i64, integers), _scatter_pairs)


def _nearest_codes(b: Any, address: Any, scale: Any, first: Any, second: Any) -> None:
    """Store 32 numbers times `scale` as the nearest int16, for |number * scale| < 32768."""
    kind = ir.VectorType(I16, 2 * LANES)
    # With so much added to it, the integer is in the low bits.
    low, high = (b.bitcast(emit_fma(b, v, scale, constant(_MAGIC)), kind) for v in (first, second))
    even = ir.Constant(ir.VectorType(I32, 2 * LANES), list(range(0, 4 * LANES, 2)))
    emit_store(b, b.shuffle_vector(low, high, even), address)


nearest_codes = _simple(types.void, (i64, floats, floats, floats), _nearest_codes)


def _emit_exp2(b: Any, x: Any, scale: Any) -> Any:
    """2^(x * scale) to 3e-6, relative, in 16 lanes, for x * scale from -126 to 0; of 0 it is 1."""
    # The exponent comes out in the low bits, ready to be added to that of the polynomial.
    shifted = emit_fma(b, x, scale, constant(_MAGIC))
    rest = emit_fma(b, x, scale, b.fneg(b.fsub(shifted, constant(_MAGIC))))
    y = constant(0.009582843366525257)
    for c in (0.0559064256234402, 0.24024098777854214, 0.6931241933679354, 1.0):
        y = emit_fma(b, y, rest, constant(c))
    return b.bitcast(b.add(b.bitcast(y, V_I32), b.shl(b.bitcast(shifted, V_I32), integer(23))), V_F32)


exp2 = _simple(floats, (floats, floats), _emit_exp2)


def _between(b: Any, v: Any, low: Any, high: Any, other: float) -> Any:
    lanes = ir.Constant(V_I32, list(range(LANES)))
    before_end = b.icmp_signed("<", lanes, emit_splat(b, b.trunc(high, I32)))
    from_start = b.icmp_signed(">=", lanes, emit_splat(b, b.trunc(low, I32)))
    return b.select(b.and_(before_end, from_start), v, constant(other))


# Lanes before `low` and from `high` on become -inf, or 0.
visible = _simple(floats, (floats, i64, i64), lambda b, v, low, high: _between(b, v, low, high, -math.inf))
hidden = _simple(floats, (floats, i64, i64), lambda b, v, low, high: _between(b, v, low, high, 0.0))


def _inside(b: Any, v: Any, count: Any) -> Any:
    lanes = ir.Constant(V_I32, list(range(LANES)))
    kept = b.icmp_signed("<", lanes, emit_splat(b, b.trunc(count, I32)))
    return b.select(kept, v, constant(0.0))


inside = _simple(floats, (floats, i64), _inside)  # lanes from `count` on become 0
# Lanes of the third where those of the first are below those of the second, else of the fourth.
where_below = _simple(
    floats, (floats,) * 4, lambda b, x, y, yes, no: b.select(b.fcmp_ordered("<", x, y), yes, no)
)


# --- between threads -------------------------------------------------------------------------

_word = lambda b, a: b.inttoptr(a, ir.PointerType(I64))  # noqa: E731
add_atomic = _simple(i64, (i64, i64), lambda b, a, v: b.atomic_rmw("add", _word(b, a), v, "seq_cst"))
swap_atomic = _simple(i64, (i64, i64), lambda b, a, v: b.atomic_rmw("xchg", _word(b, a), v, "seq_cst"))
load_atomic = _simple(i64, (i64,), lambda b, a: b.load_atomic(_word(b, a), "seq_cst", 8))
store_atomic = _simple(types.void, (i64, i64), lambda b, a, v: b.store_atomic(v, _word(b, a), "seq_cst", 8))
