"""Runs operators by XTC's back ends: the same text of a schedule, on the same inputs.

    XTC_PYTHON -m benchmarks.xtc_peer < request.json        in an environment with xtc-tools[tvm,mlir]

The module runs without Motet, in the environment of XTC; `run_xtc` starts it. Times are of one thread, since the
schedules have no tasks.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIMS = {"matmul": ["i", "j", "k"], "matmul_relu": ["i", "j", "k"], "conv2d": ["b", "h", "w", "f", "r", "s", "c"]}
BACKENDS = ("mlir", "tvm")
_NODE = "main"  # the node that has the schedule


@dataclass(frozen=True)
class XtcRequest:
    """An operator of `DIMS` with its operands, and a schedule in the declarative form: loops outermost first, with
    flags as keys. Without `repeat`, the results are computed, but not measured."""

    operator: str
    schedule: Mapping[str, Mapping[str, Any]]
    backend: str
    stride: int = 1
    repeat: int = 0


@dataclass(frozen=True)
class XtcResult:
    """Seconds of each sample, and why there are none."""

    seconds: tuple[float, ...]
    error: str = ""


def find_xtc() -> str | None:
    """A Python with XTC: that of the environment variable XTC_PYTHON, this one if it has it, or None."""
    if found := os.environ.get("XTC_PYTHON"):
        return shutil.which(found)
    return sys.executable if importlib.util.find_spec("xtc") is not None else None


def run_xtc(
    python: str, request: XtcRequest, operands: Sequence[Any], seconds: float = 300
) -> tuple[XtcResult, Any]:
    """Run a request on arrays of f32; its times, and the result, None if it failed."""
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="xtc-") as folder:
        files = [f"{folder}/{number}.npy" for number in range(len(operands))]
        for file, operand in zip(files, operands, strict=True):
            np.save(file, operand)
        text = json.dumps({**vars(request), "operands": files, "folder": folder})
        try:
            done = subprocess.run([python, __file__], input=text, capture_output=True, text=True, check=False,
                                  timeout=seconds, env={**os.environ, "OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"})
        except subprocess.TimeoutExpired:
            return XtcResult((), f"no answer within {seconds:.0f} s"), None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()] or [f"ended with {done.returncode}"]
            return XtcResult((), said[-1].strip()), None
        return XtcResult(tuple(json.loads(done.stdout.splitlines()[-1]))), np.load(f"{folder}/result.npy")


def _main() -> None:
    import numpy as np

    given = json.loads(sys.stdin.read())
    operands = [np.load(file) for file in given["operands"]]
    graph, result = _graph(given["operator"], [each.shape for each in operands], given["stride"])
    backend: Any = importlib.import_module(f"xtc.backends.{given['backend']}").Backend(graph)
    scheduler = backend.get_scheduler(default_node=_NODE)
    describe: Any = importlib.import_module("xtc.schedules.descript").descript_scheduler
    describe(scheduler, _NODE, DIMS[given["operator"]], given["schedule"])
    compiler = backend.get_compiler(shared_lib=True, dump_file=str(Path(given["folder"]) / "code"))
    module = compiler.compile(scheduler.schedule())
    out = np.zeros(result, np.float32)
    repeat = given["repeat"]
    evaluator = module.get_evaluator(
        parameters=([*operands], [out]), repeat=max(1, repeat), number=1,
        min_repeat_ms=50 if repeat else 0)
    seconds, code, error = evaluator.evaluate()
    if code:
        raise SystemExit(f"xtc: {error}")
    np.save(Path(given["folder"]) / "result.npy", out)
    print(json.dumps(list(seconds) if repeat else []))


def _graph(operator: str, shapes: Sequence[Sequence[int]], stride: int) -> tuple[Any, tuple[int, ...]]:
    """XTC's graph, and the shape of its result."""
    ops: Any = importlib.import_module("xtc.graphs.xtc.op")
    a, b = (ops.tensor(tuple(shape), "float32", name=name) for shape, name in zip(shapes, "AB", strict=True))
    with ops.graph(name=operator) as made:
        if operator == "conv2d":
            (n, h, w, _), (r, s, _, f) = shapes
            ops.conv2d(a, b, stride=(stride, stride), name=_NODE)
            result = (n, (h - r) // stride + 1, (w - s) // stride + 1, f)
        else:
            product = ops.matmul(a, b, name=_NODE)
            result = (shapes[0][0], shapes[1][1])
            if operator == "matmul_relu":
                ops.relu(product, name="relu")
    return made.graph, result


if __name__ == "__main__":
    _main()
