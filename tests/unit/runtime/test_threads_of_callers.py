"""One session called by several threads at once: right results, and arenas enough for the native call of each."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.unit.compiler.building import build

from motet.compiler.targets.cpu import X86_64_V3
from motet.cpu_features import host_features
from motet.runtime.instance import Instance

pytestmark = pytest.mark.skipif(
    not set(X86_64_V3.requires) <= set(host_features()), reason="this processor has no code"
)

ROWS, WIDTH = 61, 193
PRODUCTS = f"""
func.func @main(%x: tensor<{ROWS}x{WIDTH}xf32>, %w: tensor<{WIDTH}x{WIDTH}xf32>) -> tensor<{ROWS}x{WIDTH}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{ROWS}x{WIDTH}xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<{ROWS}x{WIDTH}xf32>) -> tensor<{ROWS}x{WIDTH}xf32>
  %p = linalg.matmul ins(%x, %w : tensor<{ROWS}x{WIDTH}xf32>, tensor<{WIDTH}x{WIDTH}xf32>)
    outs(%z : tensor<{ROWS}x{WIDTH}xf32>) -> tensor<{ROWS}x{WIDTH}xf32>
  %q = linalg.matmul ins(%p, %w : tensor<{ROWS}x{WIDTH}xf32>, tensor<{WIDTH}x{WIDTH}xf32>)
    outs(%z : tensor<{ROWS}x{WIDTH}xf32>) -> tensor<{ROWS}x{WIDTH}xf32>
  return %q : tensor<{ROWS}x{WIDTH}xf32>
}}
"""


@pytest.mark.parametrize("count", [2, 11])
def test_threads_get_arenas_of_their_own_and_their_own_results(count: int) -> None:
    session = build(PRODUCTS, X86_64_V3)
    random = np.random.default_rng(count)
    w = (random.standard_normal((WIDTH, WIDTH)) / WIDTH).astype(np.float32)
    wrong: list[int] = []
    gate = threading.Barrier(count)

    def call(number: int) -> None:
        x = np.random.default_rng(number).standard_normal((ROWS, WIDTH)).astype(np.float32)
        expected = x.astype(np.float64) @ w @ w
        out = np.empty_like(x)
        gate.wait()
        for turn in range(60):
            result = session(x, w, out=out) if turn % 2 else session(x, w)
            if not np.allclose(result, expected, rtol=1e-3, atol=1e-6):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    (instance,) = session["main"]._instances.values()  # pyright: ignore[reportPrivateUsage]
    assert isinstance(instance, Instance)
    assert instance.arena_bytes > 0 and instance.prepared is not None
    # As many as called at once, and no more: those of the native call, and those that wait for others.
    assert instance.kept_bytes <= (count + 1) * instance.arena_bytes
    assert session.memory.arena == instance.kept_bytes


def test_one_thread_whose_calls_take_the_long_way_gives_the_native_call_nothing() -> None:
    session = build(PRODUCTS, X86_64_V3)
    x, w = np.ones((ROWS, WIDTH), np.float32), np.ones((WIDTH, WIDTH), np.float32)
    for _ in range(4):
        session(x, w)
    (instance,) = session["main"]._instances.values()  # pyright: ignore[reportPrivateUsage]
    assert isinstance(instance, Instance)
    for _ in range(10):
        session(np.asfortranarray(x), w)
    assert instance.kept_bytes <= 2 * instance.arena_bytes
