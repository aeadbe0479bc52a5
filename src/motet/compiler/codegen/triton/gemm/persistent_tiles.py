"""Sizes of persistent kernels' tiles and ring buffers: `persistent.py` chooses them, `persistent_text.py` writes
code."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.triton.gemm.operand_layout import Matrix
from motet.compiler.codegen.triton.gemm.tiles import Stayed
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.strides import Extent


@dataclass(frozen=True)
class Ring(Stayed):
    """Tiles of `m` rows and `widths` columns, with `k` steps of K and `stages` slots; results are stored in pieces of
    `piece` columns, of which `outs`, a divisor of their number, may be in flight. If `wide`, one instruction multiplies
    all `widths`, which are equal. Two neighbouring `paired` tiles, which share rows, are computed by blocks on
    neighbouring SMs (`clusters.py`)."""

    m: int
    widths: tuple[int, ...]
    k: int
    stages: int
    piece: int
    outs: int = 1
    wide: bool = False
    paired: bool = False

    @property
    def label(self) -> str:
        return f"ring {self.m}x{self.n}x{self.k} stages={self.stages}" + (" in pairs" if self.paired else "")


@dataclass(frozen=True)
class PersistentParts:
    """The problem of a persistent kernel: both operands and the result (None: stored by threads) as matrices, the
    numbers of rows, columns and products, the element types of operands and sums, and whether threads multiply."""

    left: Matrix
    right: Matrix
    result: Matrix | None
    rows: Extent
    columns: Extent
    depth: Extent
    factor: str
    sum: str
    by_threads: bool = False

    @property
    def in_registers(self) -> bool:
        """Whether tensor cores read the left operand from registers, since it is contiguous across K: from shared
        memory they read only 16-bit numbers in either direction."""
        return item_bytes(self.factor) != 2 and self.left.across and not self.by_threads
