"""The class `depthwise`: reductions over windows (convolutions of single channels, poolings)."""

from __future__ import annotations

from motet.compiler.codegen.gpu.conv.depthwise import DepthwiseLaunches, DepthwisePlan
from motet.compiler.codegen.triton.conv import depthwise
from motet.compiler.codegen.triton.text.program import Form


class TritonDepthwise(DepthwiseLaunches[Form]):
    def forms(self, plan: DepthwisePlan) -> tuple[Form, ...]:
        return depthwise.emit(plan)
