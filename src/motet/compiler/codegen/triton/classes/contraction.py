"""The class `contraction`: sums of products by tensor cores, including convolutions."""

from __future__ import annotations

from motet.compiler.codegen.gpu.gemm.plan import ContractionLaunches, GemmPlan
from motet.compiler.codegen.triton.gemm import contraction
from motet.compiler.codegen.triton.text.program import Form


class TritonContractions(ContractionLaunches[Form]):
    def forms(self, plan: GemmPlan) -> tuple[Form, ...]:
        return contraction.emit(plan)
