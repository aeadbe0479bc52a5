"""Warp-specialised persistent contractions on Hopper: producer and consumer warps around a ring buffer in shared
memory.

A program computes tile after tile. One warp per operand fills the ring buffer by TMA, as far ahead as its slots allow,
also across tiles; consumer warps multiply loaded tiles asynchronously and release slots. Results are stored through
shared memory by TMA, piece by piece along N. A tile's width may be a sum of powers of two, computed as several parts;
for 16-bit operands one instruction computes all parts (`persistent_wide.py`). A 32-bit operand that is contiguous
across K is loaded through registers, as the left one. Operands of f32 in full precision are multiplied by threads.
Source: NVIDIA, "CUTLASS: Efficient GEMM in CUDA" (warp-specialised persistent kernels), 2024.
"""

from __future__ import annotations

from motet.artifact.expressions import product
from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch, leaving
from motet.compiler.codegen.gpu.gemm.operand_layout import Matrix
from motet.compiler.codegen.gpu.gemm.persistent_tiles import PersistentParts, Ring
from motet.compiler.codegen.gpu.gemm.tiles import stored_as
from motet.compiler.codegen.gpu.tasks import ceiling, total
from motet.compiler.codegen.triton.gemm.persistent_text import RingWriter, module
from motet.compiler.codegen.triton.gemm.products import blocks_along, finish, stay
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.codegen.triton.text.writer import Coordinate
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.targets.gpu import GpuTarget


def ring_form(c: ContractionLaunch, left: Matrix, right: Matrix, ring: Ring, target: GpuTarget) -> Form:
    """The form for one ring buffer. Raises `Unsupported`."""
    task, result = c.task, leaving(c)
    w = RingWriter(task.kernel, task.buffers, (ring.m, ring.piece), result, ring.outs)
    wide = ".to(tl.int64)" if w.wide else ""
    row, column = (w.define(name, f"({name}_at + {w.range(axis)}){wide}") for axis, name in enumerate("mn"))
    rows, columns = total(c.m), total(c.n)
    w.masks = {
        axis: w.define("b", f"{point} < {w.extent(count)}")
        for axis, point, count, block in ((0, row, rows, ring.m), (1, column, columns, ring.n))
        if count.known is None or count.factor % block
    }
    at = w.decompose(Coordinate(row, frozenset({0})), c.m) | w.decompose(Coordinate(column, frozenset({1})), c.n)
    if item_bytes(stored_as(c.factor)) == 2:
        w.read_ahead()
    finish(w, c, "acc", at)
    parts = PersistentParts(
        left, right, result, rows, columns, total(c.k), stored_as(c.factor), c.sum, c.factor == "f32"
    )
    tiles = product((ceiling(rows, ring.m), ceiling(columns, ring.n)))
    source = module(w, parts, ring, task.symbol, task.about)
    blocks, processors = (2, target.processors // 2 * 2) if ring.paired else (1, target.processors)
    return Form(
        source, stay(tiles, processors), ring.warps, ring.stages, ring.label, blocks,
        tiles=blocks_along(c, ring.m, ring.n, ring.k), specialized=True,
    )
