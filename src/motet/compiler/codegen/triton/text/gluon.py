"""Writes what is done to tiles in Gluon, where each tile has a layout."""

from __future__ import annotations

from motet.compiler.codegen.triton.text.writer import Writer


class GluonWriter(Writer):
    """Writes as `Writer`, on tiles in `layout`."""

    layout = "L"

    def range(self, axis: int) -> str:
        inside = ", ".join(":" if a == axis else "None" for a in range(len(self.shape)))
        return f"gl.arange(0, {self.shape[axis]}, gl.SliceLayout({1 - axis}, {self.layout}))[{inside}]"
