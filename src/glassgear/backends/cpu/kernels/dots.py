"""The one operation that machines differ in: 4 codes times 4 activations in each of 16 lanes.

Every function here takes a builder, 16 sums (int32), 16 x 4 unsigned codes (as int32 lanes) and
4 signed activations (one int32), and gives the sums plus the products. All give the same
integers: `plain` runs anywhere and says which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from glassgear.backends.cpu.kernels.vectors import I8, I16, I32, V_I32, call, emit_splat, integer

__all__ = ["DOTS", "Dot"]

Dot = Callable[[Any, Any, Any, Any, int], Any]


def plain(b: Any, sums: Any, codes: Any, four: Any, bits: int) -> Any:
    """Shifts, masks and multiplications."""
    for i in range(4):
        code = b.lshr(codes, integer(8 * i)) if i else codes
        code = b.and_(code, integer(255)) if i < 3 else code
        x = b.ashr(b.shl(four, ir.Constant(I32, 24 - 8 * i)), ir.Constant(I32, 24))
        sums = b.add(sums, b.mul(code, emit_splat(b, x)))
    return sums


def avx512vnni(b: Any, sums: Any, codes: Any, four: Any, bits: int) -> Any:
    """`vpdpbusd`, 512 bits."""
    kind = ir.VectorType(I8, 64)
    x = emit_splat(b, four)
    return _vnni(b, "llvm.x86.avx512.vpdpbusd.512", sums, codes, x, kind)


def avxvnni(b: Any, sums: Any, codes: Any, four: Any, bits: int) -> Any:
    """`vpdpbusd`, 256 bits, twice."""
    kind = ir.VectorType(I8, 32)
    x = emit_splat(b, four)
    halves = []
    for side in (0, 1):
        s, c, v = (_half(b, whole, side) for whole in (sums, codes, x))
        halves.append(_vnni(b, "llvm.x86.avx512.vpdpbusd.256", s, c, v, kind))
    return _joined(b, *halves)


def avx2(b: Any, sums: Any, codes: Any, four: Any, bits: int) -> Any:
    """`vpmaddubsw` and `vpmaddwd`, 256 bits, twice.

    The first adds pairs of products in 16 bits and saturates. 63 * 127 * 2 fits; wider codes
    are split into a low part of 4 bits and a high part, both of which fit.
    """
    x = emit_splat(b, four)
    if bits <= 6:
        return _madd(b, sums, codes, x)
    low = b.and_(codes, integer(0x0F0F0F0F))
    high = b.and_(b.lshr(codes, integer(4)), integer(0x0F0F0F0F))
    high_sum = _madd(b, integer(0), high, x)
    return b.add(_madd(b, sums, low, x), b.shl(high_sum, integer(4)))


def _madd(b: Any, sums: Any, codes: Any, x: Any) -> Any:
    bytes_, words, longs = ir.VectorType(I8, 32), ir.VectorType(I16, 16), ir.VectorType(I32, 8)
    halves = []
    for side in (0, 1):
        c, v = (b.bitcast(_half(b, whole, side), bytes_) for whole in (codes, x))
        pairs = call(b, "llvm.x86.avx2.pmadd.ub.sw", words, [c, v])
        fours = call(b, "llvm.x86.avx2.pmadd.wd", longs, [pairs, ir.Constant(words, [1] * 16)])
        halves.append(fours)
    return b.add(sums, _joined(b, *halves))


def _vnni(b: Any, name: str, sums: Any, codes: Any, x: Any, byte_kind: Any) -> Any:
    # LLVM 21 changed the operands from i32 to i8 vectors.
    from llvmlite.binding import llvm_version_info

    if llvm_version_info[0] >= 21:
        codes, x = b.bitcast(codes, byte_kind), b.bitcast(x, byte_kind)
    return call(b, name, sums.type, [sums, codes, x])


def _half(b: Any, v: Any, side: int) -> Any:
    mask = ir.Constant(ir.VectorType(I32, 8), list(range(8 * side, 8 * side + 8)))
    return b.shuffle_vector(v, v, mask)


def _joined(b: Any, low: Any, high: Any) -> Any:
    return b.shuffle_vector(low, high, ir.Constant(V_I32, list(range(16))))


DOTS: dict[str, Dot] = {"plain": plain, "avx512vnni": avx512vnni, "avxvnni": avxvnni, "avx2": avx2}
