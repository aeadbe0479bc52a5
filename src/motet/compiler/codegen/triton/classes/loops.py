"""The class `loops`: any stage with its epilogue, computed point by point."""

from __future__ import annotations

from motet.compiler.codegen.gpu.loops import LoopLaunches, LoopsPlan
from motet.compiler.codegen.triton.rows import loops
from motet.compiler.codegen.triton.text.program import Form


class TritonLoops(LoopLaunches[Form]):
    def forms(self, plan: LoopsPlan) -> tuple[Form, ...]:
        return loops.emit(plan)
