"""Products of a matrix and a few vectors (GEMV), which dominate token-by-token inference.

Every element of the matrix is used only a few times, so that read bandwidth limits the speed. A program computes the
whole sum for some of the results, without tensor cores, with several loads of whole lines in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.tasks import total
from motet.compiler.kernels.contraction import ContractionDims
from motet.compiler.kernels.kernel import FLOATS, Kernel, Stage, known_product
from motet.compiler.kernels.strides import ONE
from motet.compiler.kernels.windows import is_windowed
from motet.compiler.targets.gpu import GpuTarget

_MOST = 7  # vectors
_LEAST = 64  # of M or N (results of each vector), and of K
_PROGRAMS = 48  # minimum number of programs; if there are fewer, K is split


@dataclass(frozen=True)
class GemvBlock:
    """`results` results at a time, `depth` products of each per iteration, `stages` iterations in flight."""

    results: int
    depth: int
    warps: int
    stages: int

    @property
    def label(self) -> str:
        return f"vectors {self.results}x{self.depth} warps={self.warps} stages={self.stages}"


# For a matrix that is contiguous along K, and across K; best first, as measured on an H200 in bf16.
_ALONG = (GemvBlock(2, 2048, 4, 1), GemvBlock(8, 512, 4, 3), GemvBlock(4, 1024, 4, 3), GemvBlock(4, 1024, 4, 1))
_ACROSS = (GemvBlock(32, 512, 8, 1), GemvBlock(32, 256, 4, 3), GemvBlock(16, 512, 8, 3))
_WIDE = GemvBlock(64, 256, 8, 1)  # across K, if there are enough results for all SMs


def takes(kernel: Kernel, stage: Stage, dims: ContractionDims | None) -> bool:
    """Whether `stage`, whose dimensions have the roles `dims`, is such a product."""
    if dims is None or any(map(is_windowed, stage.inputs)):
        return False
    dtypes = {kernel.values[access.value].dtype for access in (*stage.inputs, *stage.outputs)}
    batch, m, n, k = (
        known_product(stage.sizes[d] for d in part) for part in (dims.batch, dims.m, dims.n, dims.k)
    )
    if None in (m, n, k) or not dtypes <= set(FLOATS) or dims.product.dtype not in ("f32", "f64"):
        return False
    few, many = sorted((m or 0, n or 0))
    programs = many // _ACROSS[0].results * (batch or 1)
    return few <= _MOST and many >= _LEAST and (k or 0) >= _LEAST and programs >= _PROGRAMS


def blocks_of(c: ContractionLaunch, target: GpuTarget) -> tuple[ContractionLaunch, bool, tuple[GemvBlock, ...]]:
    """The product with the matrix on the right, whether the matrix is contiguous along K, and the blocks, best first.
    `takes` must hold for the product."""
    if (total(c.m).known or 0) > (total(c.n).known or 0):
        c = replace(c, left=c.right, right=c.left, m=c.n, n=c.m)
    along = bool(c.k) and c.right.strides[c.k[-1][1]] == ONE
    many = (total(c.n).known or 0) // _WIDE.results * (total(c.batch).known or 1) >= target.processors
    return c, along, _ALONG if along else (_WIDE, *_ACROSS) if many else (*_ACROSS, _WIDE)
