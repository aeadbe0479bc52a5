"""Reads MLIR text: the syntax of the pinned MLIR, and the older syntax that `spellings.py` rewrites."""

from __future__ import annotations

from motet.compiler.frontends.complex_constants import split_complex_constants
from motet.compiler.frontends.iree.resolve_flow import ResolveFlow
from motet.compiler.frontends.iree.tensor_spellings import OPERATIONS
from motet.compiler.frontends.left_attributes import tell_of_left_attributes
from motet.compiler.frontends.locations import compile_error, locate, relocate
from motet.compiler.frontends.ml_program import read_ml_program_globals
from motet.compiler.frontends.normaliser import Source
from motet.compiler.frontends.read_shard_dialect import read_shard_dialect
from motet.compiler.frontends.read_shardy import OPERATIONS as SHARDY
from motet.compiler.frontends.read_shardy import read_shardy
from motet.compiler.frontends.spellings import modernise, resources
from motet.compiler.frontends.transform_sequences import apply_sequences
from motet.compiler.ir._mlir import ir, new_context
from motet.compiler.ir.devices import DEVICE_OP, GLOBAL_OP, LOAD_OP, STORE_OP, TRANSFER_OP
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.program import Program
from motet.compiler.ir.shardings import COLLECTIVES, DEVICE_INDEX, SHARD_OP, TO_GLOBAL, TO_LOCAL
from motet.compiler.ir.source_names import keep_operators
from motet.compiler.kernels.reader.written_schedules import mark_scheduled
from motet.compiler.passes.running import run_named
from motet.errors import CompileError, Location

# Operations unknown to upstream that are read nevertheless.
READ = frozenset({
    "krnl.global", GLOBAL_OP, LOAD_OP, STORE_OP, DEVICE_OP, TRANSFER_OP, *OPERATIONS, *SHARDY, *COLLECTIVES,
    SHARD_OP, TO_LOCAL, TO_GLOBAL, DEVICE_INDEX,
})

_DEEPEST = 2000  # brackets inside each other: MLIR's parser, and passes, call themselves for each
_AT_LEAST = 5  # a predicate of arith.cmpi
_LOWERED = ("linalg.", "tosa.")  # dialects whose operations become others, which keep their names


def load_mlir(text: str, file: str) -> Program:
    """The program that `text` holds; `file` is its name in messages. Raises CompileError with the place in `text`."""
    context = new_context()
    module, data = parse_module(text, file, context)
    program = Program(module, file=file, resources=data)
    with context, ir.Location.unknown():
        apply_sequences(module)
        tell_of_left_attributes(module)
        mark_scheduled(module)
        _krnl_globals(module)
        read_ml_program_globals(module)
        ResolveFlow().run(module)
        split_complex_constants(module)
        read_shardy(module)
        read_shard_dialect(module)
        _check_steps(module)
        run_named("read-devices", program)
    return program


def parse_module(text: str, file: str, context: ir.Context) -> tuple[ir.Module, dict[str, bytes]]:
    """The module as written, with the user's locations, and the data of its resources.

    Raises CompileError for text that does not parse and for unknown operations.
    """
    if "\0" in text:
        raise CompileError("not a text: it contains NUL characters; expected MLIR", Location(file))
    source = Source(text, file)
    source.check_depth(_DEEPEST)
    data = resources(source)
    edited = modernise(source)
    # Generic-form constants of other compilers are accepted; every other unknown operation is refused below.
    context.allow_unregistered_dialects = True
    try:
        module = ir.Module.parse(edited.text, context=context)
    except ir.MLIRError as error:
        raise compile_error(error, file, edited) from None
    relocate(module, edited)
    with context:
        keep_operators(module, _LOWERED)
    _refuse_unknown(module, context)
    _drop_public(module)
    return module, data


def _refuse_unknown(module: ir.Module, context: ir.Context) -> None:
    unknown: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        operation = op.operation
        if not context.is_registered_operation(operation.name) and operation.name not in READ:
            unknown.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    if unknown:
        raise CompileError(
            f"{unknown[0].name}: unknown operation; expected one of upstream MLIR's dialects",
            locate(unknown[0].location),
        )


def _check_steps(module: ir.Module) -> None:
    """Loops whose steps a call decides end also for those that are 0 or negative, which MLIR leaves undefined; where a
    call can check them, it refuses them."""
    for op in find_operations(module, "scf.for"):
        step = op.operands[2]
        if not isinstance(step.owner, ir.Block) and step.owner.operation.name == "arith.constant":
            continue  # MLIR has checked it
        with op.location, ir.InsertionPoint(op):
            one = ir.Operation.create(
                "arith.constant", results=[step.type], attributes={"value": ir.IntegerAttr.get(step.type, 1)},
            ).result
            op.operands[2] = ir.Operation.create("arith.maxsi", results=[step.type], operands=[step, one]).result
            if op.parent is not None and op.parent.operation.name == "func.func":
                positive = ir.Operation.create(
                    "arith.cmpi", results=[ir.IntegerType.get_signless(1)], operands=[step, one],
                    attributes={"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _AT_LEAST)},
                ).result
                message = ir.StringAttr.get("scf.for: the step must be positive")
                ir.Operation.create("cf.assert", operands=[positive], attributes={"msg": message})


def _drop_public(module: ir.Module) -> None:
    """Removes the visibility `public`, which JAX writes and which is the default; later stages expect no visibility."""
    for op in module.body.operations:
        attributes = op.operation.attributes
        if "sym_visibility" in attributes and ir.StringAttr(attributes["sym_visibility"]).value == "public":
            del attributes["sym_visibility"]


def _krnl_globals(module: ir.Module) -> None:
    """`"krnl.global"() {value = dense<…>} : () -> memref<…>`, onnx-mlir's constant, becomes
    arith.constant."""
    for op in find_operations(module, "krnl.global"):
        if "value" not in op.attributes:
            raise CompileError("krnl.global without a `value` is not supported", locate(op.location))
        value = op.attributes["value"]
        constant = ir.Operation.create(
            "arith.constant",
            results=[value.type],
            attributes={"value": value},
            loc=op.location,
            ip=ir.InsertionPoint(op),
        )
        result = constant.result
        if result.type != op.results[0].type:
            result = ir.Operation.create(
                "bufferization.to_buffer",
                results=[op.results[0].type],
                operands=[result],
                loc=op.location,
                ip=ir.InsertionPoint(op),
                attributes={"read_only": ir.UnitAttr.get()},
            ).result
        op.results[0].replace_all_uses_with(result)
        op.erase()
