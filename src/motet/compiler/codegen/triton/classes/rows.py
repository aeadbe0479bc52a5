"""The class `rows`: all stages over the same rows, one row or a few per program."""

from __future__ import annotations

from motet.compiler.codegen.gpu.rows import RowLaunches, RowsPlan
from motet.compiler.codegen.triton.rows import rows
from motet.compiler.codegen.triton.text.program import Form


class TritonRows(RowLaunches[Form]):
    def forms(self, plan: RowsPlan) -> tuple[Form, ...]:
        return rows.emit(plan)
