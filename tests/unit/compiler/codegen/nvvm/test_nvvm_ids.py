"""Who a thread is: the numbers and sizes of threads, blocks and subgroups, for grids and blocks of any shape."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.compiler.building import X86_64_V3, run
from tests.unit.compiler.codegen.nvvm.emulator import run_launches
from tests.unit.compiler.codegen.nvvm.launches import Array, launch, program

ASKED = [
    *(f"{name} {axis}" for name in ("thread_id", "block_id", "block_dim", "grid_dim", "global_id") for axis in "xyz"),
    "lane_id", "subgroup_id", "num_subgroups", "subgroup_size",
]  # fmt: skip
Triple = tuple[int, int, int]


def text_of(grid: Triple, block: Triple, barrier: bool) -> str:
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    memory = f"memref<{blocks}x{threads}x{len(ASKED)}xi32>"
    lines: list[str] = []
    for number, name in enumerate(ASKED):
        lines.append(f"%v{number} = gpu.{name}{' : index' if 'subgroup' in name else ''}")
        lines.append(f"%w{number} = arith.index_cast %v{number} : index to i32")
        lines.append(f"%p{number} = arith.constant {number} : index")
        lines.append(f"memref.store %w{number}, %y[%b, %t, %p{number}] : {memory}")
    kernel = f"""
    gpu.func @ids(%y: {memory}) kernel attributes {{motet.as_written}} {{
      %bx = gpu.block_id x
      %by = gpu.block_id y
      %bz = gpu.block_id z
      %tx = gpu.thread_id x
      %ty = gpu.thread_id y
      %tz = gpu.thread_id z
      %b = affine.linearize_index [%bz, %by, %bx] by ({grid[2]}, {grid[1]}, {grid[0]}) : index
      %t = affine.linearize_index [%tz, %ty, %tx] by ({block[2]}, {block[1]}, {block[0]}) : index
      {"gpu.barrier" if barrier else ""}
      {chr(10).join(lines)}
      gpu.return
    }}"""
    return program(kernel, f"%y: {memory}", launch("ids", grid, block, f"%y : {memory}"))


def expected(grid: Triple, block: Triple) -> Array:
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    found = np.zeros((blocks, threads, len(ASKED)), np.int32)
    for b in range(blocks):
        at = (b % grid[0], b // grid[0] % grid[1], b // grid[0] // grid[1])
        for t in range(threads):
            own = (t % block[0], t // block[0] % block[1], t // block[0] // block[1])
            whole = [at[axis] * block[axis] + own[axis] for axis in range(3)]
            found[b, t] = [*own, *at, *block, *grid, *whole, t % 32, t // 32, -(-threads // 32), 32]
    return found


sizes = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=examples(8, 8), deadline=None)
@given(grid=sizes, block=st.tuples(st.integers(1, 40), st.integers(1, 2), st.integers(1, 2)), barrier=st.booleans())
@example(grid=(2, 3, 1), block=(33, 2, 1), barrier=False)
@example(grid=(3, 1, 2), block=(5, 1, 2), barrier=True)
def test_every_thread_knows_who_it_is(grid: Triple, block: Triple, barrier: bool) -> None:
    text, wanted = text_of(grid, block, barrier), expected(grid, block)
    np.testing.assert_array_equal(run_launches(text, [np.zeros_like(wanted)])[0], wanted)
    np.testing.assert_array_equal(run(text, [np.zeros_like(wanted)], X86_64_V3)[0], wanted)
