"""Compiles small programs in a process from which others are forked, so that lazily loaded modules and registrations
are shared by all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.compiler.ir.program import Program

_PROGRAM = """
func.func @main(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %new = tensor.empty() : tensor<8x8xf32>
  %begin = linalg.fill ins(%zero : f32) outs(%new : tensor<8x8xf32>) -> tensor<8x8xf32>
  %product = linalg.matmul ins(%x, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%begin : tensor<8x8xf32>)
    -> tensor<8x8xf32>
  %result = math.exp %product : tensor<8x8xf32>
  return %result : tensor<8x8xf32>
}
"""


@functools.cache
def rehearse() -> None:
    """Compile a program in MLIR up to its kernels; once."""
    from motet.compiler.frontends.mlir import load_mlir

    _partition(lambda: load_mlir(_PROGRAM, "rehearsal"))


@functools.cache
def rehearse_onnx() -> None:
    """Compile the same program as an ONNX model; once. Raises ImportError if onnx is not installed."""
    import onnx
    from onnx import helper

    from motet.compiler.frontends.onnx.loading import load_onnx

    kind = onnx.TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(name, kind, [8, 8]) for name in "xw"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Exp", ["product"], ["e"]),
        helper.make_node("Softmax", ["e"], ["result"]),
    ]
    graph = helper.make_graph(nodes, "main", inputs, [helper.make_tensor_value_info("result", kind, [8, 8])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    _partition(lambda: load_onnx(model.SerializeToString(), "rehearsal"))


def _partition(load: Callable[[], Program]) -> None:
    from motet.compiler.build.partitioning import partition_for
    from motet.compiler.ir._mlir import ir
    from motet.compiler.pipeline import normalise, prepare
    from motet.compiler.targets.cpu import X86_64_V3

    program = load()
    context = program.module.context
    prepare(program)
    with context, ir.Location.unknown():
        normalise(program)
        partition_for(program, [X86_64_V3])  # a target of another processor needs the same modules
