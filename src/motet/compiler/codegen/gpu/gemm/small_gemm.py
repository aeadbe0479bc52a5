"""Small products without tensor cores: few results per program, so that all SMs are busy, with all operands loaded at
once.

A tile of threads loads its operands to registers and sums by halving, lane by lane. There is no loop along K, and no
operand in shared memory, so that a product takes about one memory latency and a launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.gemm.launch import ContractionLaunch
from motet.compiler.codegen.gpu.tasks import power_of_two, total
from motet.compiler.kernels.windows import is_windowed
from motet.compiler.targets.gpu import GpuTarget

_DEEPEST = 256  # of K
_PRODUCTS = 2048  # multiply-adds per warp


@dataclass(frozen=True)
class SmallBlock:
    """A tile of `m` times `n` results."""

    m: int
    n: int
    warps: int

    @property
    def label(self) -> str:
        return f"spread {self.m}x{self.n} warps={self.warps}"


_SHAPES = (SmallBlock(1, 32, 4), SmallBlock(2, 32, 4), SmallBlock(2, 64, 4), SmallBlock(4, 32, 4))


def blocks_of(c: ContractionLaunch, target: GpuTarget) -> list[SmallBlock]:
    """At most two tiles with which every SM gets at most one program; none for large products."""
    m, n, k, batch = (total(loops).known for loops in (c.m, c.n, c.k, c.batch))
    if m is None or n is None or k is None or batch is None or k > _DEEPEST:
        return []
    if c.factor not in ("f32", "f64") or is_windowed(c.task.stage.inputs[0]) or is_windowed(c.task.stage.inputs[1]):
        return []
    fitting = [block for block in _SHAPES if batch * -(-m // block.m) * -(-n // block.n) <= target.processors]
    return [block for block in fitting if block.m * block.n * power_of_two(k) <= _PRODUCTS * block.warps][:2]
