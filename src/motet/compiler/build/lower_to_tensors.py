"""lower-to-tensors: a program as a front end builds it becomes operations on tensors, in functions without calls.

    func.func @main(%x: memref<4xf32>, %y: memref<4xf32>) {       func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>
      affine.for %i = 0 to 4 {                                          {motet.destination…}) -> tensor<4xf32> {
        %0 = affine.load %x[%i] : memref<4xf32>              →      %1 = linalg.generic … ins(%x) outs(%y) { math.exp }
        %1 = math.exp %0 : f32                                      return %1
        affine.store %1, %y[%i] : memref<4xf32>                   }
      }

Calls are inlined, dialects that upstream lowers to linalg are lowered, loops over memory are raised to linalg, memory
becomes tensors, scalar arguments become tensors of rank 0, and extents that follow from values become extents of
inputs. Operations keep what they say of devices: the next stage is placement.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.artifact.validation import MAXIMUM_RANK
from motet.compiler.frontends.buffers import debufferise, has_buffers
from motet.compiler.frontends.complex_constants import split_complex_constants
from motet.compiler.frontends.crop_pads import CropPads
from motet.compiler.frontends.gpu.keep_launches import launches, pass_scalars, settle_launches
from motet.compiler.frontends.gpu.keep_loops import keep_loops
from motet.compiler.frontends.gpu.lower_launches import LowerLaunches
from motet.compiler.frontends.locations import locate
from motet.compiler.frontends.lower_complex_functions import LowerComplexFunctions
from motet.compiler.frontends.raising.raise_loops import raise_loops
from motet.compiler.frontends.read_value_extents import ReadValueExtents
from motet.compiler.ir._mlir import func, ir, run_pipeline
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.ir.short_types import SHORT_TYPES
from motet.compiler.ir.source_names import keep_operators
from motet.compiler.ir.uses_devices import uses_devices
from motet.compiler.kernels.kernel import ITEM_BITS
from motet.compiler.passes.base import Pass
from motet.compiler.passes.running import run_on_module
from motet.compiler.placement.anchor_operations import AnchorOperations
from motet.compiler.placement.inline_calls import InlineCalls, refuse_recursion
from motet.compiler.placement.read_devices import declarations
from motet.errors import CompileError, Location


@dataclass(frozen=True)
class LowerToTensors(Pass):
    """Raises CompileError for a module without a public function, and, at its place, for what has no tensor form."""

    name = "lower-to-tensors"

    def run(self, program: Program) -> bool:
        module = program.module
        split_complex_constants(module)
        _require_public(module, program.file)
        run_on_module(CropPads(), module)
        _lower(module)
        run_on_module(LowerComplexFunctions(), module)
        if settle_launches(module):
            _inline(module)
        for function in launches(module):
            debufferise(function)
            _tensors_only(function)
        for function in _functions(module):
            if has_buffers(function):
                raise_loops(function)
                debufferise(function)
            _tensors_only(function)
            pass_scalars(function)
        _drop_globals(module)
        split_complex_constants(module)
        run_on_module(ReadValueExtents(), module)
        return True


def _functions(module: ir.Module) -> list[func.FuncOp]:
    return [function.opview for function in public_functions(module)]


def _require_public(module: ir.Module, file: str) -> None:
    functions = [op for op in module.body.operations if isinstance(op, func.FuncOp)]
    if len(declarations(module)) == len(module.body.operations) > 0:
        return  # devices, to see which those of a machine would be
    if not public_functions(module):
        there = (
            ", ".join(f"@{function.name.value} (private)" for function in functions) or "no function at all"
        )
        raise CompileError(
            f"no public function; expected at least one func.func that is not private, there is {there}",
            locate(functions[0].location) if functions else Location(file),
        )
    for function in functions:
        if not list(function.regions[0].blocks):
            raise CompileError(
                f"function @{function.name.value} has no body; expected its definition in the same file",
                locate(function.location) or Location(file),
            )


def _lower(module: ir.Module) -> None:
    """Calls are inlined, and dialects that upstream lowers to linalg are lowered."""
    dialects = _dialects(module)
    if "gpu" in dialects:
        run_on_module(LowerLaunches(), module)
        dialects = _dialects(module)
    if "cf" in dialects and any(len(list(one.regions[0].blocks)) > 1 for one in _functions(module)):
        run_pipeline(module, "lift-cf-to-scf")  # branches between blocks become scf.if and scf.while
    if "tosa" in dialects:
        run_on_module(InlineCalls(), module)
        run_on_module(AnchorOperations(), module)
        keep_operators(module, ("tosa.",))
        run_pipeline(
            module,
            "func.func(tosa-infer-shapes,tosa-make-broadcastable,tosa-to-linalg-named,canonicalize,"
            "tosa-layerwise-constant-fold,tosa-make-broadcastable,tosa-to-linalg),"
            "func.func(tosa-to-tensor,tosa-to-arith{include-apply-rescale=true},tosa-to-scf)",
        )
    _inline(module)
    if dialects & {"scf", "affine"}:
        keep_loops(module, _lower_loops)
    _lower_loops(module)


def _lower_loops(module: ir.Module) -> None:
    dialects = _dialects(module)
    if "affine" in dialects:
        run_pipeline(module, "lower-affine")
    if dialects & {"memref", "affine"} and dialects & {"scf", "affine"}:
        # Variables of a loop's body that lie in memory become values, so that sums are seen to be reductions.
        run_pipeline(
            module, "func.func(scf-forall-to-for),scf-parallel-for-to-nested-fors,func.func(sroa,mem2reg)"
        )


def _drop_globals(module: ir.Module) -> None:
    """Constants in memory, whose data is where they were read."""
    for entry in list(module.body.operations):
        if entry.operation.name == "memref.global":
            entry.operation.erase()


def _inline(module: ir.Module) -> None:
    """All calls but those of launches that are kept."""
    run_on_module(InlineCalls(), module)
    # Upstream's inliner cleans up as it goes, and so forgets where operations run.
    run_pipeline(module, "symbol-dce" if uses_devices(module) else "inline,symbol-dce", verify_each=False)
    refuse_recursion(module)


def _dialects(module: ir.Module) -> set[str]:
    found: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.add(op.operation.name.split(".")[0])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


# -- signatures ------------------------------------------------------------------------------------


def _tensors_only(function: func.FuncOp) -> None:
    """Scalar arguments and results become tensors of rank 0; other types are refused."""
    blocks = list(function.regions[0].blocks)
    entry = blocks[0]
    for index, argument in enumerate(entry.arguments):
        what = f"@{function.name.value}: argument {index}"
        tensor = _tensor_for(argument.type, what, argument.location)
        if tensor != argument.type:
            scalar = argument.type
            argument.set_type(tensor)
            first = entry.operations[0]
            extract = ir.Operation.create(
                "tensor.extract",
                results=[scalar],
                operands=[argument],
                loc=argument.location,
                ip=ir.InsertionPoint(first),
            )
            argument.replace_all_uses_except(extract.result, extract)
    results: list[ir.Type] = []
    for block in blocks:
        last = block.operations[len(block.operations) - 1].operation
        if last.name != "func.return":
            continue
        for index, value in enumerate(list(last.operands)):
            tensor = _tensor_for(value.type, f"@{function.name.value}: result {index}", last.location)
            if tensor != value.type:
                last.operands[index] = ir.Operation.create(
                    "tensor.from_elements",
                    results=[tensor],
                    operands=[value],
                    loc=last.location,
                    ip=ir.InsertionPoint(last),
                ).result
        results = [value.type for value in last.operands]
    kind = ir.FunctionType.get([argument.type for argument in entry.arguments], results)
    function.attributes["function_type"] = ir.TypeAttr.get(kind)


def _tensor_for(kind: ir.Type, what: str, location: ir.Location) -> ir.RankedTensorType:
    if isinstance(kind, ir.UnrankedTensorType):
        raise CompileError(f"{what} is the unranked {kind}; expected a ranked tensor", locate(location))
    if isinstance(kind, ir.RankedTensorType) and kind.rank > MAXIMUM_RANK:
        raise CompileError(f"{what} has {kind.rank} axes; expected at most {MAXIMUM_RANK}", locate(location))
    element = kind.element_type if isinstance(kind, ir.RankedTensorType) else kind
    if str(element) not in ITEM_BITS and str(element) not in SHORT_TYPES:
        known = ", ".join(dict.fromkeys([*ITEM_BITS, *SHORT_TYPES]))
        raise CompileError(f"{what} is {kind}; expected a tensor of {known}", locate(location))
    return kind if isinstance(kind, ir.RankedTensorType) else ir.RankedTensorType.get([], kind)
