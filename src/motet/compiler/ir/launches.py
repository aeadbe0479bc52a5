"""The representation of a kernel launch of the dialect `gpu` between frontends and code generators.

A private function represents the launch: its body computes the launch as loops; attributes record how it was written,
for devices that run it in that form:

- `motet.launch = "module { func.func @launch(…) { … gpu.launch_func … } gpu.module … }"`: the launch and its kernel
  over memrefs; the arguments of `@launch` are those of the private function.
- `motet.launch_operands = array<i64: …>`, of a kernel's function: the number of its argument for each of those; -1 for
  uninitialised memory.
- `motet.launch_results = array<i64: …>`, of a kernel's function: the number of the argument that each result is, after
  it was written.

`motet.as_written` on a `gpu.func` requests that it is kept even if its loops become operations of `linalg`.
"""

from __future__ import annotations

LAUNCH = "motet.launch"
LAUNCH_OPERANDS = "motet.launch_operands"
LAUNCH_RESULTS = "motet.launch_results"
AS_WRITTEN = "motet.as_written"
