"""Enumerates the tiles of contractions for Intel's GPUs, which `tiles.py` ranks.

A sub-group has one register file, of 4 or 8 KiB, for the results and operands of all its work-items, so that tiles are
spread over more threads than on NVIDIA's GPUs: 8 results for each without a matrix engine, 16 with one. Operands are
loaded by any addresses (`pointers`), or, on devices with 2-D block loads, by block pointers (`blocks`), which go to the
matrix engine's registers directly and give zeros out of bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.targets.gpu import XpuDevice

_ENGINE = ("f16", "bf16", "tf32", "i8")  # factors that matrix engines multiply
_SIDES = (16, 32, 64, 128, 256)
_MOST, _MOST_PLAIN = 256 * 128, 64 * 64  # results of a tile, with and without a matrix engine
_SPREAD, _SPREAD_PLAIN = 1024, 512  # results of a tile for each of a form's warps
_DEPTHS = {"f16": 32, "bf16": 32, "tf32": 16, "i8": 64}
_WIDE_REGISTERS = 64  # bytes; half as many results suit narrower registers
_MOST_BYTE_COLUMNS = 32  # of products of bytes without a matrix engine: more spill hundreds of registers
_PLAIN_DEPTH, _LEAST_PLAIN_DEPTH = 16, 8


@dataclass(frozen=True)
class XpuTile:
    """The size of a tile, and its warps as forms count them; `blocks`: its operands are loaded by block pointers."""

    m: int
    n: int
    k: int
    warps: int
    blocks: bool


def xpu_tiles(device: XpuDevice, factor: str, sizes: tuple[int, int, int], described: bool) -> list[XpuTile]:
    """The tiles for a product of `sizes` (rows, columns, K, rounded up to powers of two); `described`: both operands
    suit block pointers."""
    engine = device.matrix_engine and factor in _ENGINE
    m_most, n_most, k_most = sizes
    most, spread = (_MOST, _SPREAD) if engine else (_MOST_PLAIN, _SPREAD_PLAIN)
    if not engine and device.register_bytes < _WIDE_REGISTERS:
        most //= 2
    if factor == "f64":
        most, spread = most // 4, spread // 2
    depth, least = (_DEPTHS[factor], _DEPTHS[factor] // 2) if engine else (_PLAIN_DEPTH, _LEAST_PLAIN_DEPTH)
    depth = min(depth, max(least, k_most))
    if factor.startswith("f8") or factor == "i8":
        depth = max(depth, 32)
        n_most = n_most if engine else min(n_most, _MOST_BYTE_COLUMNS)
    blocks = [True, False] if engine and described and device.block_loads else [False]
    return [
        XpuTile(m, n, depth, max(1, min(8, m * n // spread)), block)
        for m in _SIDES for n in _SIDES for block in blocks
        if m * n <= most and m <= max(16, m_most) and n <= max(16, n_most)
    ]
