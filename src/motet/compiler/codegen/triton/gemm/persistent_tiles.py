"""What a ring of tiles is made for, and its sizes: `ring.py` chooses them, `ring_text.py` writes the program."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.triton.gemm.operand_layout import Matrix
from motet.compiler.codegen.triton.gemm.tiles import Stayed
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.strides import Extent


@dataclass(frozen=True)
class Ring(Stayed):
    """Tiles of `m` rows and `widths` columns, `k` along the sum at a time, `stages` places in the ring; results leave
    in pieces of `piece` columns, `outs` of which may be on their way, and which divide the number of pieces. If it is
    `wide`, one instruction multiplies all `widths`, which are alike. Of `paired` tiles two beside each other,
    which have rows in common, are made by blocks on neighbouring processors (`clusters.py`)."""

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
    """What a ring is written for: both factors and the result (None: stored by the threads) as matrices, how many rows,
    columns and products there are, the element type of factors and sums, and whether threads multiply themselves."""

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
        """Whether the left factor comes to the tensor cores from registers, since it lies across its sum: from shared
        memory they take 16-bit numbers alone in either direction."""
        return item_bytes(self.factor) != 2 and self.left.across and not self.by_threads
