"""The cost of bounds checks of indices on the host: gathers and scatters with and without checks.

    python -m benchmarks.indices

Both run interleaved on one thread. A row has the fastest call of each, and their ratio; the limit is the time without
checks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import motet

SECONDS = 2.0
Inputs = tuple[np.ndarray, ...]


def _model(operator: str, inputs: Inputs, dynamic: bool, **attributes: Any) -> bytes:
    infos = [
        helper.make_tensor_value_info(
            f"x{k}", helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"e{k}_{axis}" for axis in range(array.ndim)] if dynamic else array.shape,
        )
        for k, array in enumerate(inputs)
    ]
    node = helper.make_node(operator, [info.name for info in infos], ["y"], operator, **attributes)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", infos, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def _gather(table: tuple[int, ...], count: int, axis: int = 0, dynamic: bool = False, kind: str = "i8") -> Any:
    rng = np.random.default_rng(0)
    extent = table[axis]
    indices = rng.integers(-extent, extent, count).astype(kind)
    inputs = (rng.standard_normal(table, np.float32), indices)
    name = f"Gather {'x'.join(map(str, table))}, {count} {kind} of axis {axis}{', dynamic' if dynamic else ''}"
    return name, _model("Gather", inputs, dynamic, axis=axis), inputs


def _elements(operator: str, shape: tuple[int, ...], axis: int) -> Any:
    rng = np.random.default_rng(0)
    indices = rng.integers(-shape[axis], shape[axis], shape)
    inputs = (rng.standard_normal(shape, np.float32), indices)
    if operator == "ScatterElements":
        inputs = (*inputs, rng.standard_normal(shape, np.float32))
    return f"{operator} {'x'.join(map(str, shape))}, axis {axis}", _model(operator, inputs, False, axis=axis), inputs


CASES: tuple[Callable[[], Any], ...] = (
    lambda: _gather((5000, 1024), 4096),
    lambda: _gather((5000, 1024), 4096, dynamic=True),
    lambda: _gather((50000, 768), 512),
    lambda: _gather((50000, 768), 512, kind="i4"),
    lambda: _gather((5000, 64), 16384),
    lambda: _gather((5000, 17), 16384),
    lambda: _gather((5000, 8), 65536),
    lambda: _gather((5000, 3), 65536),
    lambda: _gather((5000,), 100000),
    lambda: _gather((5000,), 100000, kind="i4"),
    lambda: _gather((512, 600), 256, axis=1),
    lambda: _gather((7, 600, 33), 255, axis=1),
    lambda: _elements("GatherElements", (512, 512), 0),
    lambda: _elements("GatherElements", (512, 512), 1),
    lambda: _elements("ScatterElements", (512, 512), 0),
)


def main() -> None:
    for make in CASES:
        name, source, inputs = make()
        sessions = [
            motet.load(motet.compile(source, options={"unchecked-indices": flag}), threads=1) for flag in (True, False)
        ]
        results = [session.main(*inputs) for session in sessions for _ in range(3)]
        out = np.empty_like(results[0])
        best = [float("inf")] * 2
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            for number, session in enumerate(sessions):
                for _ in range(3):
                    begin = time.perf_counter()
                    session.main(*inputs, out=out)
                    best[number] = min(best[number], time.perf_counter() - begin)
        without, checked = (1e6 * seconds for seconds in best)
        sys.stdout.write(f"{name:48} {without:9.1f} µs {checked:9.1f} µs  {checked / without:.3f}\n")
        sys.stdout.flush()
        for session in sessions:
            session.close()


if __name__ == "__main__":
    main()
