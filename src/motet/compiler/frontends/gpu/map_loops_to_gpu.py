"""map-loops-to-gpu: converts loops with independent iterations to launches of full blocks of threads.

    affine.for %i = 0 to 64 {                  gpu.launch_func @main_0s::@main_0 blocks in (7, 1, 1)
      affine.for %j = 0 to 28 { … } }     →      threads in (256, 1, 1) args(%x, %y)

Parallel loops are taken as such; `affine.for` is parallel if upstream's dependence analysis proves it
(`affine-parallelize`). A thread executes one iteration of a perfect loop nest, so that an inner loop of few iterations
does not leave threads idle. Loops that are not parallel, or whose iterations allocate more memory than a thread has,
stay on the host.
"""

from __future__ import annotations

from motet.compiler.frontends.gpu.parallel_launch import PARALLELISE, ParallelLaunch, fits_threads
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.functions import symbol_name
from motet.compiler.passes.base import ModulePass


class MapLoopsToGpu(ModulePass):
    """Converts the outermost parallel loops of each function."""

    name = "map-loops-to-gpu"

    def run(self, module: ir.Module) -> None:
        run_pipeline(module, PARALLELISE)
        for entry in list(module.body.operations):
            function = entry.operation
            if function.name != "func.func" or not list(function.regions[0].blocks):
                continue
            name = symbol_name(function)
            for number, loop in enumerate(_parallel_loops(function)):
                ParallelLaunch(module, loop, f"{name}_{number}").make()
                module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get(module.context)


def _parallel_loops(function: ir.Operation) -> list[ir.Operation]:
    """The outermost parallel loops of a function that have no results and that threads can run."""
    return [
        entry.operation
        for block in function.regions[0].blocks
        for entry in block.operations
        if entry.operation.name == "scf.parallel" and not len(entry.operation.results)
        and fits_threads(entry.operation)
    ]
