"""Arguments that are said to be on the device."""

from __future__ import annotations

import pytest
from tests.prepared import load_mlir

from motet.compiler.placement.place import Place
from motet.compiler.targets.device_flags import parse_device_flags
from motet.errors import CompileError

TEXT = """
func.func @main(%x: memref<4xf32>, %y: memref<4xf32> {{memref.on_device{value}}}, %out: memref<4xf32>) {{
  linalg.add ins(%x, %y : memref<4xf32>, memref<4xf32>) outs(%out : memref<4xf32>)
  return
}}
"""


def input_devices(flags: tuple[str, ...], value: str = "") -> list[str]:
    placement = load_mlir(TEXT.format(value=value), "test.mlir", Place(parse_device_flags(flags), False)).placement
    assert placement is not None
    return [placement.devices[number].name for number in placement.plans["main"].input_devices]


def test_on_device_is_the_device_that_is_not_the_default_one() -> None:
    assert input_devices(("cpu=host", "acc=riscv")) == ["cpu", "acc", "cpu"]


def test_on_device_may_name_the_device() -> None:
    assert input_devices(("cpu=host", "acc=riscv", "gpu=null"), ' = "gpu"')[1] == "gpu"


def test_on_device_without_a_name_is_an_error_where_there_are_several() -> None:
    with pytest.raises(CompileError, match=r'argument 1: memref\.on_device: which device.*one of "acc", "gpu"'):
        input_devices(("cpu=host", "acc=riscv", "gpu=null"))


def test_on_device_of_another_kind_is_an_error() -> None:
    with pytest.raises(CompileError, match=r"memref\.on_device: 3 : i64; expected no value, or a device's name"):
        input_devices(("cpu=host", "acc=riscv"), " = 3")


def test_a_program_for_one_device_is_on_it() -> None:
    assert load_mlir(TEXT.format(value=""), "test.mlir", Place((), False)).placement is None


MATMUL = """
func.func @main(%a: memref<4x8xf32> {A}, %b: memref<8x2xf32> {B}, %c: memref<4x2xf32> {C}) {
  %zero = arith.constant 0.0 : f32
  FILL
  linalg.matmul ins(%a, %b : memref<4x8xf32>, memref<8x2xf32>) outs(%c : memref<4x2xf32>)
  return
}
"""


FILL = "linalg.fill ins(%zero : f32) outs(%c : memref<4x2xf32>)"
TO_C = [
    ("BC", [("acc", 0)], "acc"), ("AC", [("acc", 1)], "acc"), ("A", [("cpu", 0)], "cpu"), ("B", [("cpu", 1)], "cpu"),
    ("ABC", [], "acc"), ("", [], "cpu"),
]


@pytest.mark.parametrize(("on_device", "moved", "runs", "first"), [
    *((*each, first) for each in TO_C for first in (FILL, "")),
    ("C", [("acc", 0), ("acc", 1)], "acc", ""), ("AB", [("cpu", 0), ("cpu", 1)], "cpu", ""),
])
def test_a_product_runs_where_the_tensor_is_that_it_writes_into(
    on_device: str, moved: list[tuple[str, int]], runs: str, first: str
) -> None:
    text = MATMUL.replace("FILL", first)
    for name in "ABC":
        text = text.replace(f"{{{name}}}", "{memref.on_device}" if name in on_device else "")
    placement = load_mlir(text, "test.mlir", Place(parse_device_flags(("cpu=host", "acc=null")), False)).placement
    assert placement is not None
    plan, names = placement.plans["main"], [device.name for device in placement.devices]
    transfers = [(names[step.device], step.operands[0]) for step in plan.steps if step.op == "transfer"]
    assert sorted(transfers) == [(device, plan.inputs[number]) for device, number in moved]
    assert [names[step.device] for step in plan.steps if step.op == "run"] == [runs]
    assert names[plan.result_devices[0]] == names[plan.input_devices[2]] == ("acc" if "C" in on_device else "cpu")
