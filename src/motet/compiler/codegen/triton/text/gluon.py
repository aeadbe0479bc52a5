"""Writes what is done to tiles in Gluon, where each tile has a layout."""

from __future__ import annotations

from motet.compiler.codegen.triton.text.scalars import carried_type
from motet.compiler.codegen.triton.text.writer import Writer


class GluonWriter(Writer):
    """Writes as `Writer`, on tiles in `layout`."""

    layout = "L"
    jit = "gluon.jit"
    head = (
        f"{Writer.head}from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n"
    )

    def text(self) -> str:
        scalars = super().text().replace("tl.full((), ", "tl.cast(")  # Gluon's `full` needs a layout
        return scalars.replace("tl.sum(", "gl.sum(")

    def range(self, axis: int) -> str:
        inside = ", ".join(":" if a == axis else "None" for a in range(len(self.shape)))
        return f"gl.arange(0, {self.shape[axis]}, gl.SliceLayout({1 - axis}, {self.layout}))[{inside}]"

    def turned(self, text: str) -> str:
        return f"gl.convert_layout(gl.permute({text}, (1, 0)), {self.layout})"

    def spread(self, text: str, dtype: str) -> str:
        everywhere = f"gl.full({self.tile}, 1, gl.int1, {self.layout})"  # also of a scalar
        return f"tl.where({everywhere}, {text}, {text}).to({carried_type(dtype)})"
