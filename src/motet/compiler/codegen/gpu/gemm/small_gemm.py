"""Small products on the processors' own units: few results for each program, so that all processors have some, and all
that they are made of read at once.

A tile of threads has its results' factors in registers and adds up in halves, lane by lane: there is no loop along the
sum and no factor in shared memory, so that what it takes is about one access to memory and a launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.tasks import power_of_two, total
from motet.compiler.kernels.windows import is_windowed
from motet.compiler.targets.gpu import GpuTarget

_DEEPEST = 256  # products of each result
_PRODUCTS = 2048  # of the threads of a warp


@dataclass(frozen=True)
class SmallBlock:
    """`m` times `n` results."""

    m: int
    n: int
    warps: int

    @property
    def label(self) -> str:
        return f"spread {self.m}x{self.n} warps={self.warps}"


_SHAPES = (SmallBlock(1, 32, 4), SmallBlock(2, 32, 4), SmallBlock(2, 64, 4), SmallBlock(4, 32, 4))


def blocks_of(c: ContractionLaunch, target: GpuTarget) -> list[SmallBlock]:
    """The smallest that leave no processor more than one program, where there is such a one; none for larger
    products."""
    m, n, k, batch = (total(loops).known for loops in (c.m, c.n, c.k, c.batch))
    if m is None or n is None or k is None or batch is None or k > _DEEPEST:
        return []
    if c.factor not in ("f32", "f64") or is_windowed(c.task.stage.inputs[0]) or is_windowed(c.task.stage.inputs[1]):
        return []
    fitting = [block for block in _SHAPES if batch * -(-m // block.m) * -(-n // block.n) <= target.processors]
    return [block for block in fitting if block.m * block.n * power_of_two(k) <= _PRODUCTS * block.warps][:2]
