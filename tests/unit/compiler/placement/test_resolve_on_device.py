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
