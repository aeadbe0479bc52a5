"""The class `products`: several products whose results are combined element by element."""

from __future__ import annotations

from motet.compiler.codegen.gpu.gemm.multi_plan import MultiPlan, ProductLaunches
from motet.compiler.codegen.triton.gemm import multi_gemm
from motet.compiler.codegen.triton.text.program import Form


class TritonProducts(ProductLaunches[Form]):
    def forms(self, plan: MultiPlan) -> tuple[Form, ...]:
        return multi_gemm.emit(plan)
