"""New contexts of MLIR, and the verification of pipelines in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import motet.compiler
from motet.compiler.ir._mlir import ir, new_context, run_pipeline

# Dialects whose operations are only found in programs: the parser or a pass has loaded them then.
_READ = frozenset({"llvm", "shard", "transform"})


def names_in_sources() -> Iterator[str]:
    for path in Path(motet.compiler.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from re.findall(r"^[a-z_]+\.[a-z_.]+$", node.value)


def test_operations_that_the_compiler_names_are_registered_in_a_new_context() -> None:
    every, new = ir.Context(), new_context()
    named = {name for name in names_in_sources() if every.is_registered_operation(name)}
    assert {"arith.addf", "gpu.barrier", "shard.grid"} <= named
    assert {name.partition(".")[0] for name in named if not new.is_registered_operation(name)} == _READ


@pytest.mark.parametrize("text", [
    "func.func @f() { %0 = llvm.mlir.constant(1 : i32) : i32 return }",
    'func.func @f() { %0 = "spirv.Constant"() <{value = 1 : i32}> : () -> i32 return }',
    "func.func @f(%x: !quant.uniform<i8:f32, 0.5>) { return }",
    "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { %0 = tosa.tanh %x : (tensor<2xf32>) -> tensor<2xf32> "
    "return %0 : tensor<2xf32> }",
])
def test_the_parser_loads_the_other_dialects(text: str) -> None:
    assert ir.Module.parse(text, context=new_context()).operation.verify()


@pytest.mark.parametrize("verify_each", [True, False])
def test_a_pipeline_refuses_a_module_that_it_leaves_invalid(verify_each: bool) -> None:
    context = new_context()
    with context, ir.Location.unknown():
        module = ir.Module.parse("func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")
        block = module.body.operations[0].operation.regions[0].blocks[0]
        ir.Operation.create("linalg.yield", operands=[block.arguments[0]], ip=ir.InsertionPoint.at_block_begin(block))
        with pytest.raises(ir.MLIRError, match="must be the last operation in the parent block"):
            run_pipeline(module, "symbol-dce", verify_each)
