"""keep-loops: records, for a loop over memrefs with independent iterations, how a GPU runs it.

    affine.parallel (%i, %j) = (0, 0) to (64, %n) { … }
      →  call @loop_launch_0(%x, %y)
         func.func private @loop_launch_0(…) attributes {motet.launch = "<a launch of blocks of 256>", no_inline} {
           affine.parallel … }

The function is like that of a launch (`keep_launches.py`), except that its body is the loop itself. Loops that become
operations of `linalg` are left alone; raising a copy of the module shows which these are. Parallel loops are taken as
such; `affine.for` is parallel if upstream's dependence analysis proves it (`affine-parallelize`). A thread executes one
iteration of a perfect loop nest, the innermost loop fastest.
"""

from __future__ import annotations

from collections.abc import Callable

from motet.compiler.frontends.gpu.keep_launches import closure, fresh_name, keep_function
from motet.compiler.frontends.gpu.kernels import within
from motet.compiler.frontends.gpu.parallel_launch import PARALLELISE, ParallelLaunch, fits_threads
from motet.compiler.frontends.raising.raise_loops import raise_loops
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.remap import remap

_LOOPS = ("affine.for", "affine.parallel", "scf.parallel")
_KERNEL = "loop"


def keep_loops(module: ir.Module, lower: Callable[[ir.Module], None]) -> None:
    """Rewrites the outermost parallel loops of the public functions of `module`, in place; `lower` brings loops to the
    form from which they are raised."""
    loops = [loop for function in public_functions(module) for loop in _loops(function)]
    stays = _staying(module, lower) if loops else set()
    for loop in loops:
        if str(loop.location) in stays:
            _keep(module, loop)


def _loops(function: ir.Operation) -> list[ir.Operation]:
    blocks = list(function.regions[0].blocks)
    operations = [entry.operation for entry in blocks[0].operations] if len(blocks) == 1 else []
    return [
        operation for operation in operations
        if operation.name in _LOOPS and not len(operation.results)
        and any(isinstance(value.type, ir.MemRefType) for value in captured_values(operation))
    ]


def _staying(module: ir.Module, lower: Callable[[ir.Module], None]) -> set[str]:
    """The locations of loops that remain after raising."""
    trial = ir.Module.create(loc=module.operation.location)
    for entry in module.body.operations:
        trial.body.append(entry.operation.clone())
    lower(trial)
    places: set[str] = set()
    for function in public_functions(trial):
        raise_loops(function.opview)
        places.update(str(op.location) for op in within(function) if op.name.startswith("scf."))
    return places


def _keep(module: ir.Module, loop: ir.Operation) -> None:
    moved, leaves = closure(list(dict.fromkeys(captured_values(loop))))
    if any(not isinstance(leaf.type, ir.MemRefType) and not isinstance(leaf.owner, ir.Block) for leaf in leaves):
        return
    name = fresh_name(module, _KERNEL)
    function = keep_function(module, name, leaves, loop.location)
    block = function.regions[0].blocks[0]
    values = dict(zip(leaves, block.arguments, strict=True))
    last = block.operations[0].operation
    for operation in [*moved, loop]:
        with ir.InsertionPoint(last):
            copy = operation.clone()
        remap(copy, values)
        values.update(zip(operation.results, copy.results, strict=True))
    text = _launch_text(function)
    if text is None:
        function.erase()
        return
    named = {a: loop.attributes[a] for a in loop.attributes if a.startswith("motet.")}
    keep_function(module, name, leaves, loop.location, made=function, text=text)
    ir.Operation.create(
        "func.call", operands=leaves, attributes={**named, "callee": ir.FlatSymbolRefAttr.get(name)},
        loc=loop.location, ip=ir.InsertionPoint(loop),
    )  # fmt: skip
    loop.erase()


def _launch_text(function: ir.Operation) -> str | None:
    """A module in which the loop of `function` is a launch; None if its iterations depend on one another."""
    holder = ir.Module.create(loc=function.location)
    holder.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
    copy = function.clone()
    copy.attributes["sym_name"] = ir.StringAttr.get("launch")
    del copy.attributes["sym_visibility"]
    holder.body.append(copy)
    run_pipeline(holder, PARALLELISE)
    host = holder.body.operations[0].operation
    found = [entry.operation for entry in host.regions[0].blocks[0].operations]
    loops = [operation for operation in found if len(operation.regions)]
    if len(loops) != 1 or loops[0].name != "scf.parallel" or len(loops[0].results):
        return None
    if not fits_threads(loops[0]):
        return None
    ParallelLaunch(holder, loops[0], _KERNEL).make()
    holder.operation.verify()
    return holder.operation.get_asm(enable_debug_info=True, assume_verified=True)
