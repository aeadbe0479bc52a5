"""Loops of the generic path split into tasks: which are, and that tasks may run in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.prepared import load_mlir
from tests.seeds import examples
from tests.unit.compiler.codegen.cpu.test_generic import emit, run
from tests.unit.compiler.frontends.raising.loops import Loops, loop_nests

from motet.compiler.build import lower_to_tensors


def _unraised(text: str) -> str:
    """The program as loops that carry tensors, whatever could be made of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lower_to_tensors, "raise_loops", lambda function: None)
        return _whole(text)


def _whole(text: str) -> str:
    """The program with its loops where they are: none is a function of its own, for GPUs to have it as a launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lower_to_tensors, "keep_loops", lambda module, lower: None)
        return str(load_mlir(text, "test.mlir").module)


@settings(max_examples=examples(60))
@given(nest=loop_nests(), splits=st.integers(2, 4), seed=st.integers(0, 99))
def test_tasks_of_random_nests_run_in_any_order(nest: Loops, splits: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    arrays = {name: generator.integers(-9, 9, shape).astype(np.int32) for name, shape in nest.shapes.items()}
    text = _unraised(nest.text())
    written = [name for name in arrays if any(store.array == name for store in nest.stores)]
    found = run(text, list(arrays.values()), [arrays[name].shape for name in written], splits)
    nest.run(arrays)
    for name, result in zip(written, found, strict=True):
        np.testing.assert_array_equal(result, arrays[name])


def _blocks(count: int, length: int, index: str, n: int) -> str:
    return f"""
    func.func @main(%x: memref<{n}xi32>, %y: memref<{n}xi32>) {{
      affine.for %b = 0 to {count} {{
        %s = memref.alloc() : memref<{length}xi32>
        affine.for %t = 0 to {length} {{
          %v = affine.load %x[%b * {length} + %t] : memref<{n}xi32>
          affine.store %v, %s[%t] : memref<{length}xi32>
        }}
        affine.for %t = 0 to {length} {{
          %v = affine.load %s[{length - 1} - %t] : memref<{length}xi32>
          affine.store %v, %y[{index}] : memref<{n}xi32>
        }}
      }}
      return
    }}
    """


@pytest.mark.parametrize(("count", "length"), [(3, 8), (5, 7), (1, 4), (4, 1)])
def test_blocks_with_memory_of_their_own_are_tasks(count: int, length: int) -> None:
    n = count * length
    text = _whole(_blocks(count, length, f"%b * {length} + %t", n))
    x, y = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    assert emit(text).code.phases[0].tasks == count
    (found,) = run(text, [x, y], [(n,)], splits=count)
    np.testing.assert_array_equal(found, x.reshape(count, length)[:, ::-1].ravel())


def test_blocks_that_overlap_are_one_task() -> None:
    text = _whole(_blocks(3, 8, "%b * 7 + %t", 24))
    assert emit(text).code.phases[0].tasks == 1
    x, want = np.arange(24, dtype=np.int32), np.zeros(24, np.int32)
    for block in range(3):
        want[block * 7 : block * 7 + 8] = x[block * 8 : block * 8 + 8][::-1]
    (found,) = run(text, [x, np.zeros(24, np.int32)], [(24,)])
    np.testing.assert_array_equal(found, want)
