"""The class `products`: several products whose results are combined element by element."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.gpu.launches import LaunchClass, LaunchPart, seen_by
from motet.compiler.codegen.triton.gemm import multi_gemm, multi_matching
from motet.compiler.codegen.triton.gemm.multi_matching import Joined
from motet.compiler.codegen.triton.text.program import Form
from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.targets.gpu import GpuTarget


class ProductLaunches(LaunchClass[Joined, tuple[Joined, GpuTarget], Form]):
    name = "products"
    rank = 1

    def count(self, kernel: Kernel, stages: Sequence[Stage]) -> int:
        for count in range(len(stages), 1, -1):
            if multi_matching.matched(kernel, stages[:count], seen_by(kernel, stages[:count], set())) is not None:
                return count
        return 0

    def match(self, launch: LaunchPart, target: GpuTarget) -> Joined | None:
        return multi_matching.match(launch, target)

    def plan(self, found: Joined, target: GpuTarget) -> tuple[Joined, GpuTarget]:
        return found, target

    def forms(self, plan: tuple[Joined, GpuTarget]) -> tuple[Form, ...]:
        return multi_gemm.emit(*plan)
