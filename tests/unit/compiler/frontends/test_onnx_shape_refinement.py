"""Shapes are refined unless all are known, and no loop or branch is to be folded."""

from __future__ import annotations

import pytest

from motet.compiler.frontends.onnx.mlir_import import shapes_known
from motet.compiler.ir._mlir import ir, register_torch_dialect

STATIC, UNKNOWN = "!torch.vtensor<[2,3],f32>", "!torch.vtensor"


def module(kind: str) -> str:
    return f"""
func.func @main(%x: {UNKNOWN}<[?,3],f32>) -> {kind} {{
  %y = torch.aten.tanh %x : {UNKNOWN}<[?,3],f32> -> {kind}
  return %y : {kind}
}}"""


BRANCH = f"""
func.func @main(%c: !torch.bool, %x: {STATIC}) -> {STATIC} {{
  %y = torch.prim.If %c -> ({STATIC}) {{
    torch.prim.If.yield %x : {STATIC}
  }} else {{
    torch.prim.If.yield %x : {STATIC}
  }}
  return %y : {STATIC}
}}"""


@pytest.mark.parametrize(("text", "known"), [
    (module(STATIC), True),
    (module("!torch.vtensor<[],si64>"), True),
    (module("!torch.vtensor<[2,?],f32>"), False),
    (module("!torch.vtensor<*,f32>"), False),
    (module("!torch.vtensor<[2,3],unk>"), False),
    (module("!torch.vtensor"), False),
    (BRANCH, False),
])  # fmt: skip
def test_only_results_of_given_extents_and_element_types_are_known(text: str, known: bool):
    context = ir.Context()
    register_torch_dialect(context)
    assert shapes_known(ir.Module.parse(text, context=context)) is known
