"""Applies upstream's rewrites that its textual pass pipelines lack.

`decompose` rewrites operations that upstream cannot bufferize or lower to simpler ones, on tensors:

    tensor.concat   →  tensor.empty and tensor.insert_slice
    linalg.softmax  →  linalg.generic
    linalg.pack     →  tensor.pad, tensor.expand_shape, linalg.transpose
    tm_tensor.sort  →  scf.for, tensor.extract, tensor.insert (`wholes_to_loops.py`)

`own_memory` gives each tensor that a loop carries its own memory.
`copies_to_linalg` replaces `memref.copy`, whose lowering may call a runtime library, by `linalg.copy`.
`emulate_bfloat16` computes in f32, and rounds after each operation.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.wholes_to_loops import lower_wholes

_DECOMPOSE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %functions = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %functions {
      transform.apply_patterns.tensor.decompose_concat
    } : !transform.any_op
    %softmax = transform.structured.match ops{["linalg.softmax"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.foreach %softmax : !transform.any_op {
    ^bb0(%one: !transform.any_op):
      %parts = transform.structured.decompose_interface %one : (!transform.any_op) -> !transform.any_op
    }
    %pack = transform.structured.match ops{["linalg.pack"]} in %root
      : (!transform.any_op) -> !transform.op<"linalg.pack">
    transform.foreach %pack : !transform.op<"linalg.pack"> {
    ^bb0(%one: !transform.op<"linalg.pack">):
      %pad, %expand, %transpose = transform.structured.lower_pack %one : (!transform.op<"linalg.pack">)
        -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
            !transform.op<"linalg.transpose">)
    }
    %unpack = transform.structured.match ops{["linalg.unpack"]} in %root
      : (!transform.any_op) -> !transform.op<"linalg.unpack">
    transform.foreach %unpack : !transform.op<"linalg.unpack"> {
    ^bb0(%one: !transform.op<"linalg.unpack">):
      %empty, %transpose, %collapse, %slice, %copy = transform.structured.lower_unpack %one
        : (!transform.op<"linalg.unpack">) -> (!transform.op<"tensor.empty">,
          !transform.op<"linalg.transpose">, !transform.op<"tensor.collapse_shape">,
          !transform.op<"tensor.extract_slice">, !transform.op<"linalg.copy">)
    }
    transform.yield
  }
}
"""
_DECOMPOSED = ("tensor.concat", "linalg.softmax", "linalg.pack", "linalg.unpack")


def decompose(module: ir.Module) -> None:
    """Applies the rewrites above to `module`, in place."""
    lower_wholes(module)
    if not _operations(module, _DECOMPOSED):
        return
    from motet.compiler.ir._mlir import interpreter

    with module.context, ir.Location.unknown():
        script = ir.Module.parse(_DECOMPOSE)
        interpreter.apply_named_sequence(module.operation, script.body.operations[0], script.operation)


def own_memory(module: ir.Module) -> None:
    """Gives every use of a `tensor.empty`, and every initial tensor of a loop, its own tensor, in place.

    One-shot bufferization assumes that two initial tensors of a loop are different memory even if they are one value,
    which common subexpression elimination makes of tensors of equal types.
    """
    for empty in _operations(module, ("tensor.empty",)):
        for use in list(empty.results[0].uses)[1:]:
            with ir.InsertionPoint(empty):
                copy = empty.clone()
            use.owner.operation.operands[use.operand_number] = copy.results[0]
    for loop in _operations(module, ("scf.for", "scf.while")):
        seen: list[ir.Value] = []
        for number, value in enumerate(loop.operands):
            if isinstance(value.type, ir.RankedTensorType) and value in seen:
                loop.operands[number] = ir.Operation.create(
                    "bufferization.alloc_tensor", results=[value.type], operands=[value],
                    attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1, 0])},
                    loc=loop.location, ip=ir.InsertionPoint(loop),
                ).result  # fmt: skip
            seen.append(value)


def copies_to_linalg(module: ir.Module) -> None:
    """Replaces each `memref.copy` by `linalg.copy`, in place."""
    for copy in _operations(module, ("memref.copy",)):
        from motet.compiler.ir._mlir import linalg

        source, target = copy.operands
        with ir.InsertionPoint(copy), copy.location:
            linalg.copy(source, outs=[target])
        copy.erase()


def emulate_bfloat16(module: ir.Module) -> None:
    """Replaces arithmetic on bf16 by arithmetic on f32 with rounding to bf16 after each operation, in place."""
    if "bf16" not in str(module):
        return
    run_pipeline(module, "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32}")
    # The pass allows folding the intermediate roundings, which changes results.
    with module.context:
        exact = ir.Attribute.parse("#arith.fastmath<none>")
    for conversion in _operations(module, ("arith.extf", "arith.truncf")):
        conversion.attributes["fastmath"] = exact


def _operations(module: ir.Module, names: tuple[str, ...]) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def look(operation: ir.Operation) -> ir.WalkResult:
        if operation.name in names:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found
