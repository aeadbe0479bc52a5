"""Reads StableHLO text, as JAX and others export it, by upstream's conversion to linalg.

CHLO operations are decomposed, except those that `math` has (erf and others), which keep their accuracy. `composite`
becomes its decomposition; `while`, `if` and `case` become `scf`.
"""

from __future__ import annotations

from motet.compiler.frontends.crop_pads import CropPads
from motet.compiler.frontends.locations import compile_error, locate
from motet.compiler.frontends.mlir import parse_module
from motet.compiler.frontends.read_shardy import read_shardy
from motet.compiler.frontends.stablehlo.collectives import read_collectives
from motet.compiler.frontends.stablehlo.complex import split_complex_bits, split_complex_constants
from motet.compiler.frontends.stablehlo.corrections import correct_stablehlo
from motet.compiler.frontends.stablehlo.dynamic import compute_with_numbers, write_dynamic_reshapes
from motet.compiler.frontends.stablehlo.dynamic_places import write_dynamic_places
from motet.compiler.frontends.stablehlo.dynamic_windows import name_reducers, write_dynamic_windows
from motet.compiler.frontends.stablehlo.fourier import write_transforms
from motet.compiler.frontends.stablehlo.linear import read_library_calls, write_solves
from motet.compiler.frontends.stablehlo.maps import spread_maps
from motet.compiler.frontends.stablehlo.scatters import fill_bodies, flatten_scatters
from motet.compiler.frontends.stablehlo.sorts import order_sorts
from motet.compiler.frontends.stablehlo.windows import select_then_scatter
from motet.compiler.ir._mlir import ir, new_context, register_stablehlo, run_pipeline
from motet.compiler.ir.current import create
from motet.compiler.ir.find import all_operations, find_operations
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.program import OF_EXTENTS, Program, show_unsigned, unsigned
from motet.compiler.ir.sizes import extent_of
from motet.compiler.ir.source_names import keep_operators
from motet.compiler.passes.running import run_named, run_on_module
from motet.errors import CompileError

_BEFORE = (
    "func.func(stablehlo-legalize-deprecated-ops,stablehlo-legalize-composite-to-call,chlo-legalize-to-stablehlo,"
    "stablehlo-canonicalize-dynamism,shape-legalize-to-stablehlo),inline,symbol-dce"
)
_TO_LINALG = "func.func(chlo-legalize-to-stablehlo),stablehlo-legalize-to-linalg"
# Unsigned integers become signless after they have selected the operations (divui, uitofp, …).
_LOWER = (
    "stablehlo-convert-to-signless,reconcile-unrealized-casts,"
    "func.func(shape-to-shape-lowering,remove-shape-constraints),convert-shape-to-std,"
    "reconcile-unrealized-casts,canonicalize,cse"
)

_MATH = {
    "chlo.erf": "math.erf",
    "chlo.erfc": "math.erfc",
    "chlo.acos": "math.acos",
    "chlo.acosh": "math.acosh",
    "chlo.asin": "math.asin",
    "chlo.asinh": "math.asinh",
    "chlo.atan": "math.atan",
    "chlo.atanh": "math.atanh",
    "chlo.cosh": "math.cosh",
    "chlo.sinh": "math.sinh",
    "chlo.tan": "math.tan",
}


def load_stablehlo(text: str, file: str) -> Program:
    """The program that `text` holds; `file` is its name in messages.

    Unsigned integers become signless ones of the same width, except in the signature. Raises CompileError with the
    place in `text`, also for operations that have no lowering.
    """
    context = new_context()
    register_stablehlo(context)
    module, data = parse_module(text, file, context)
    program = Program(module, file=file, resources=data)
    try:
        with context, ir.Location.unknown():
            name_reducers(module)
            without_sign = _unsigned(module)
            read_shardy(module)
            read_collectives(module)
            run_named("read-devices", program)
            _refuse_early(module)
            _tuples(module)
            run_named("anchor-devices", program)
            keep_operators(module, ("stablehlo.", "chlo."))
            _keep_math(module)
            split_complex_constants(module)
            split_complex_bits(module)
            spread_maps(module)
            correct_stablehlo(module)
            run_pipeline(module, _BEFORE)
            _assertions(module)
            select_then_scatter(module)
            write_transforms(module)
            read_library_calls(module)
            write_solves(module)
            split_complex_constants(module)
            correct_stablehlo(module)
            flatten_scatters(module)
            order_sorts(module)
            _drop_barriers(module)
            write_dynamic_windows(module)
            write_dynamic_reshapes(module)
            write_dynamic_places(module)
            _concatenations(module)
            _dimension_sizes(module)
            compute_with_numbers(module)
            _structured_control_flow(module)
            run_pipeline(module, _TO_LINALG)
            fill_bodies(module)
            run_on_module(CropPads(), module)
            run_pipeline(module, _LOWER)
            _refuse_left_over(module)
            for function in public_functions(module):
                show_unsigned(function, *without_sign[symbol_name(function)])
    except ir.MLIRError as error:
        raise compile_error(error, file) from None
    return program


def _unsigned(module: ir.Module) -> dict[str, tuple[list[int], list[int]]]:
    """The numbers of the arguments and results of each function that hold unsigned integers."""
    kinds = {
        symbol_name(function): ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        for function in public_functions(module)
    }
    return {name: (unsigned(kind.inputs), unsigned(kind.results)) for name, kind in kinds.items()}


def _replace(op: ir.Operation, values: list[ir.Value]) -> None:
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    op.erase()


def _keep_math(module: ir.Module) -> None:
    for op in find_operations(module, *_MATH):
        kind = op.results[0].type
        if isinstance(ir.ShapedType(kind).element_type, ir.ComplexType):
            continue
        new = ir.Operation.create(
            _MATH[op.name],
            results=[kind],
            operands=list(op.operands),
            loc=op.location,
            ip=ir.InsertionPoint(op),
        )
        _replace(op, list(new.results))


def _drop_barriers(module: ir.Module) -> None:
    for op in find_operations(module, "stablehlo.optimization_barrier"):
        _replace(op, list(op.operands))


def _concatenations(module: ir.Module) -> None:
    """Rewrites `concatenate` to tensor.concat; upstream's lowering would select the input element by element."""
    for op in find_operations(module, "stablehlo.concatenate"):
        new = ir.Operation.create(
            "tensor.concat",
            results=[op.results[0].type],
            operands=list(op.operands),
            attributes={"dim": op.attributes["dimension"]},
            loc=op.location,
            ip=ir.InsertionPoint(op),
        )
        _replace(op, list(new.results))


def _dimension_sizes(module: ir.Module) -> None:
    """Rewrites `get_dimension_size` to tensor.dim, as a tensor of rank 0."""
    for op in find_operations(module, "stablehlo.get_dimension_size"):
        kind = ir.RankedTensorType(op.results[0].type)
        with op.location, ir.InsertionPoint(op):
            extent = extent_of(op.operands[0], ir.IntegerAttr(op.attributes["dimension"]).value)
            number = create("arith.index_cast", kind.element_type, [extent])
            _replace(op, [create("tensor.from_elements", kind, [number])])


def _assertions(module: ir.Module) -> None:
    """Converts JAX's assertions about symbolic extents to `cf.assert` of extents, which become constraints of calls."""
    for op in find_operations(module, "stablehlo.custom_call"):
        if ir.StringAttr(op.attributes["call_target_name"]).value != "shape_assertion":
            continue
        said = ir.StringAttr(op.attributes["error_message"]).value if "error_message" in op.attributes else ""
        ir.Operation.create(
            "cf.assert", operands=[_scalar(op.operands[0], op)], loc=op.location, ip=ir.InsertionPoint(op),
            attributes={"msg": ir.StringAttr.get(said.split(". ")[0]), OF_EXTENTS: ir.UnitAttr.get()},
        )  # fmt: skip
        op.erase()


def _tuples(module: ir.Module) -> None:
    """Replaces elements of tuples by the operands that the tuples were built from."""
    for op in find_operations(module, "stablehlo.get_tuple_element"):
        made = op.operands[0].owner
        if not isinstance(made, ir.Block) and made.operation.name == "stablehlo.tuple":
            _replace(op, [made.operation.operands[ir.IntegerAttr(op.attributes["index"]).value]])
    for op in find_operations(module, "stablehlo.tuple"):
        if not list(op.results[0].uses):
            op.erase()


def _refuse_early(module: ir.Module) -> None:
    """Refuses operations that crash upstream's passes."""
    for op in all_operations(module):
        if not op.name.startswith(("stablehlo.", "chlo.")):
            continue
        kinds = [str(value.type) for value in (*op.operands, *op.results)]
        if any("!quant" in kind for kind in kinds):
            raise CompileError(
                f"{op.name}: quantised types, as in {_types(op)}, are not supported; expected integers, with the "
                "scale and the zero point applied by operations",
                locate(op.location),
            )


def _refuse_left_over(module: ir.Module) -> None:
    """Refuses operations without a lowering before later passes encounter them."""
    left: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        name = op.operation.name
        if name.startswith(("stablehlo.", "chlo.", "vhlo.")) and name != "stablehlo.return":
            left.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in left:
        if op.name == "stablehlo.custom_call":
            target = ir.StringAttr(op.attributes["call_target_name"]).value
            raise CompileError(
                f"stablehlo.custom_call @{target}: code of a library that the program does not hold; expected "
                "StableHLO operations",
                locate(op.location),
            )
    if left:
        raise CompileError(
            f"{left[0].name}: this operation, with its types {_types(left[0])}, has no lowering to linalg; "
            "rewrite it with other StableHLO operations",
            locate(left[0].location),
        )


def _types(op: ir.Operation) -> str:
    inputs = ", ".join(str(value.type) for value in op.operands)
    return f"({inputs}) -> ({', '.join(str(value.type) for value in op.results)})"


# -- control flow ----------------------------------------------------------------------------------


def _structured_control_flow(module: ir.Module) -> None:
    for op in find_operations(module, "stablehlo.while"):
        _while(op)
    for op in find_operations(module, "stablehlo.if", "stablehlo.case"):
        _if(op) if op.name == "stablehlo.if" else _case(op)


def _move(source: ir.Region, target: ir.Region) -> ir.Block:
    block = source.blocks[0]
    block.append_to(target)
    return block


def _end(block: ir.Block, name: str, operands: list[ir.Value]) -> None:
    """Ends `block` with operation `name` instead of its stablehlo.return."""
    last = block.operations[len(block.operations) - 1].operation
    ir.Operation.create(name, operands=operands, loc=last.location, ip=ir.InsertionPoint(last))
    last.erase()


def _last_operands(block: ir.Block) -> list[ir.Value]:
    return list(block.operations[len(block.operations) - 1].operation.operands)


def _scalar(tensor: ir.Value, before: ir.Operation) -> ir.Value:
    """The element of a tensor of rank 0."""
    kind = ir.RankedTensorType(tensor.type).element_type
    return ir.Operation.create(
        "tensor.extract", results=[kind], operands=[tensor], loc=before.location, ip=ir.InsertionPoint(before)
    ).result


def _while(op: ir.Operation) -> None:
    kinds = [value.type for value in op.results]
    new = ir.Operation.create(
        "scf.while",
        results=kinds,
        operands=list(op.operands),
        regions=2,
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    condition, body = (_move(op.regions[i], new.regions[i]) for i in range(2))
    last = condition.operations[len(condition.operations) - 1].operation
    proceed = _scalar(last.operands[0], last)
    _end(condition, "scf.condition", [proceed, *condition.arguments])
    _end(body, "scf.yield", _last_operands(body))
    _replace(op, list(new.results))


def _branch(op: ir.Operation, condition: ir.Value, at: ir.InsertionPoint) -> ir.Operation:
    return ir.Operation.create(
        "scf.if",
        results=[value.type for value in op.results],
        operands=[condition],
        regions=2,
        loc=op.location,
        ip=at,
    )


def _if(op: ir.Operation) -> None:
    new = _branch(op, _scalar(op.operands[0], op), ir.InsertionPoint(op))
    for source, target in zip(op.regions, new.regions, strict=True):
        block = _move(source, target)
        _end(block, "scf.yield", _last_operands(block))
    _replace(op, list(new.results))


def _case(op: ir.Operation) -> None:
    """Becomes `scf.index_switch`; as specified, an index out of range takes the last branch."""
    index = ir.Operation.create(
        "arith.index_cast",
        results=[ir.IndexType.get()],
        operands=[_scalar(op.operands[0], op)],
        loc=op.location,
        ip=ir.InsertionPoint(op),
    ).result
    branches = len(op.regions)
    new = ir.Operation.create(
        "scf.index_switch",
        results=[value.type for value in op.results],
        operands=[index],
        regions=branches,
        attributes={"cases": ir.DenseI64ArrayAttr.get(list(range(branches - 1)))},
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    # The default region comes first.
    for source, target in zip([op.regions[branches - 1], *list(op.regions)[:-1]], new.regions, strict=True):
        block = _move(source, target)
        _end(block, "scf.yield", _last_operands(block))
    _replace(op, list(new.results))
