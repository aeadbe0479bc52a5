"""The class `windows`: convolutions with few products per point, sibling convolutions together."""

from __future__ import annotations

from motet.compiler.codegen.gpu.conv.windows import WindowLaunches, WindowsPlan
from motet.compiler.codegen.triton.conv import windows
from motet.compiler.codegen.triton.text.program import Form


class TritonWindows(WindowLaunches[Form]):
    def forms(self, plan: WindowsPlan) -> tuple[Form, ...]:
        return windows.emit(plan)
