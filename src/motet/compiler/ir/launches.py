"""How a launch of a kernel in the dialect `gpu` is kept on its way to the code generators.

A private function stands for the launch: its body is what the launch computes, as loops; attributes say how it was
written, for devices that run it so:

- `motet.launch = "module { func.func @launch(…) { … gpu.launch_func … } gpu.module … }"`: the launch and its kernel
  over memrefs; the arguments of `@launch` are those of the private function.
- `motet.launch_operands = array<i64: …>`, of a kernel's function: which of its arguments each of those is; -1 for
  memory that holds nothing before.
- `motet.launch_results = array<i64: …>`, of a kernel's function: which of those each of its results is, once written.

`motet.as_written` on a `gpu.func` asks that it is kept even where its loops become operations of `linalg`.
"""

from __future__ import annotations

LAUNCH = "motet.launch"
LAUNCH_OPERANDS = "motet.launch_operands"
LAUNCH_RESULTS = "motet.launch_results"
AS_WRITTEN = "motet.as_written"
