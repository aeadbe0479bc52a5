"""Functions with several launches: some with barriers beside some without, and launches on parts of one memory."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.building import X86_64_V3, random, run

from motet.compiler.service import optimise

KERNELS = """
  gpu.module @k {
    gpu.func @square(%x: memref<256xf32>, %y: memref<256xf32>) kernel {
      %i = gpu.global_id x
      %v = memref.load %x[%i] : memref<256xf32>
      %w = arith.mulf %v, %v : f32
      memref.store %w, %y[%i] : memref<256xf32>
      gpu.return
    }
    gpu.func @turn(%x: memref<256xf32>, %y: memref<256xf32>)
        workgroup(%s : memref<64xf32, #gpu.address_space<workgroup>>) kernel {
      %i = gpu.global_id x
      %t = gpu.thread_id x
      %v = memref.load %x[%i] : memref<256xf32>
      memref.store %v, %s[%t] : memref<64xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %last = arith.constant 63 : index
      %r = arith.subi %last, %t : index
      %w = memref.load %s[%r] : memref<64xf32, #gpu.address_space<workgroup>>
      memref.store %w, %y[%i] : memref<256xf32>
      gpu.return
    }
  }
"""
LAUNCH = """
    gpu.launch_func @k::@{} blocks in (%b, %c1, %c1) threads in (%t, %c1, %c1)
      args(%{} : memref<256xf32>, %{} : memref<256xf32>)
"""


def program(*launches: tuple[str, str, str]) -> str:
    body = "".join(LAUNCH.format(*launch) for launch in launches)
    arguments = ", ".join(f"%{name}: memref<256xf32>" for name in "xyz")
    return f"""module attributes {{gpu.container_module}} {{{KERNELS}
  func.func @main({arguments}) {{
    %c1 = arith.constant 1 : index
    %b = arith.constant 4 : index
    %t = arith.constant 64 : index
{body}
    return
  }}
}}"""


@pytest.mark.parametrize("launches", [
    [("square", "x", "y"), ("turn", "y", "z")], [("turn", "x", "y"), ("square", "y", "z")],
    [("turn", "x", "y"), ("square", "y", "z"), ("turn", "z", "y")],
], ids=["before a barrier", "after a barrier", "between barriers"])  # fmt: skip
def test_launches_with_and_without_barriers(launches: list[tuple[str, str, str]]) -> None:
    values = {"x": random(256), "y": np.zeros(256, np.float32), "z": np.zeros(256, np.float32)}
    arrays = [values[name].copy() for name in "xyz"]
    for kernel, source, target in launches:
        x = values[source]
        values[target] = x * x if kernel == "square" else x.reshape(4, 64)[:, ::-1].reshape(-1).copy()
    found = run(program(*launches), arrays, X86_64_V3)
    for result, name in zip(found, "yz", strict=True):
        np.testing.assert_array_equal(result, values[name])


PARTS = """module attributes {{gpu.container_module}} {{
  gpu.module @k {{
    gpu.func @copy(%x: memref<64xf32>, %y: memref<16x8xf32, strided<[?, ?], offset: ?>>) kernel {{
      %i = gpu.thread_id x
      %j = gpu.thread_id y
      %v = memref.load %x[%i] : memref<64xf32>
      memref.store %v, %y[%i, %j] : memref<16x8xf32, strided<[?, ?], offset: ?>>
      gpu.return
    }}
  }}
  func.func @main(%x: memref<64xf32>, %m: memref<64x64xf32>) {{
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
{launches}
    return
  }}
}}"""
PART = """
    %s{0} = memref.subview %m{1}[16, 8][{2}] : memref<64x64xf32> to memref<16x8xf32, strided<[{3}], offset: {4}>>
    %p{0} = memref.cast %s{0} : memref<16x8xf32, strided<[{3}], offset: {4}>>
      to memref<16x8xf32, strided<[?, ?], offset: ?>>
    gpu.launch_func @k::@copy blocks in (%c1, %c1, %c1) threads in (%c16, %c8, %c1)
      args(%x : memref<64xf32>, %p{0} : memref<16x8xf32, strided<[?, ?], offset: ?>>)
"""


def waits(*parts: tuple[tuple[str, str], tuple[int, int]]) -> bool:
    """Whether the second of two launches, which write these parts of a matrix, waits for the first."""
    made: list[str] = []
    for number, ((row, column), (down, across)) in enumerate(parts):
        known = (row + column).isdigit()
        offset = str(int(row) * 64 + int(column)) if known else "?"
        made.append(PART.format(number, f"[{row}, {column}]", f"{down}, {across}", f"{64 * down}, {across}", offset))
    text = optimise(PARTS.format(launches="".join(made)), "test.mlir", "gpu-concurrency")
    tokens = {}
    for line in text.splitlines():
        if " = gpu." in line:
            name, _, rest = line.strip().partition(" = ")
            tokens[name] = (rest.startswith("gpu.launch"), rest.partition("[")[2].partition("]")[0].split(", "))
    first, second = [name for name, (launch, _) in tokens.items() if launch]
    waited = tokens[second][1]
    return first in waited or any(first in tokens.get(token, (False, []))[1] for token in waited)


def test_launches_wait_for_parts_that_they_share_alone() -> None:
    assert not waits((("0", "0"), (1, 1)), (("16", "0"), (1, 1)))  # rows below
    assert not waits((("0", "0"), (1, 1)), (("0", "8"), (1, 1)))  # columns to the right
    assert not waits((("0", "0"), (2, 1)), (("1", "0"), (2, 1)))  # odd rows beside even ones
    assert not waits((("0", "0"), (1, 1)), (("0", "%c8"), (1, 1)))
    assert waits((("0", "0"), (1, 1)), (("15", "7"), (1, 1)))  # a corner
    assert waits((("0", "0"), (2, 1)), (("1", "0"), (1, 1)))
    assert waits((("0", "0"), (2, 1)), (("2", "0"), (2, 1)))
