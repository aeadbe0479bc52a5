"""Runs operators by XTC's back ends: the same text of a schedule, on the same inputs.

    XTC_PYTHON -m benchmarks.xtc_peer < request.json        in an environment with xtc-tools[tvm,mlir]

The module runs without Motet, in the environment of XTC; `run_xtc` starts it. Times are of one thread, since the
schedules have no tasks. `run_there` starts any module of the benchmarks in that environment.
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
PACKAGES = "xtc-tools[tvm,mlir]==0.3.2"
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


def how_to_get_xtc() -> str:
    """What `find_xtc` misses, in one line."""
    given = os.environ.get("XTC_PYTHON")
    why = "XTC_PYTHON is not set" if given is None else f"XTC_PYTHON={given} is no program"
    return (f"XTC and TVM were not measured: {why}; expected a Python of: python3 -m venv xtc && xtc/bin/pip install "
            f"'{PACKAGES}' xgboost-cpu; XTC's MLIR back end needs libomp, too (Debian: libomp-dev)")


def run_xtc(
    python: str, request: XtcRequest, operands: Sequence[Any], seconds: float = 300
) -> tuple[XtcResult, Any]:
    """Run a request on arrays of f32; its times, and the result, None if it failed."""
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="xtc-") as folder:
        lines, error = run_there(python, "benchmarks.xtc_peer", vars(request), operands, folder, seconds)
        if error or not lines:
            return XtcResult((), error or "no answer"), None
        return XtcResult(tuple(json.loads(lines[-1]))), np.load(f"{folder}/result.npy")


def run_there(
    python: str, module: str, request: Mapping[str, Any], operands: Sequence[Any], folder: str, seconds: float,
    threads: int = 1,
) -> tuple[list[str], str]:
    """Run a module on arrays of f32, which it gets as files in `folder`; the lines that it printed, and why it failed,
    if it did."""
    import numpy as np

    files = [f"{folder}/{number}.npy" for number in range(len(operands))]
    for file, operand in zip(files, operands, strict=True):
        np.save(file, operand)
    text = json.dumps({**request, "operands": files, "folder": folder})
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "TVM_NUM_THREADS": str(threads), "PYTHONPATH": ""}
    printed = Path(folder) / "printed"
    try:
        with printed.open("w") as file:
            done = subprocess.run([python, "-m", module], input=text, stdout=file, stderr=subprocess.PIPE, text=True,
                                  check=False, timeout=seconds, env=env, cwd=Path(__file__).parents[1])
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"ended with {done.returncode}"]
        error = said[-1] if done.returncode else ""
    except subprocess.TimeoutExpired:
        error = f"no answer within {seconds:.0f} s"
    return printed.read_text().splitlines(), error


def _main() -> None:
    import numpy as np

    given = json.loads(sys.stdin.read())
    operands = [np.load(file) for file in given["operands"]]
    graph, result = graph_of(given["operator"], [each.shape for each in operands], given["stride"])
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


def graph_of(operator: str, shapes: Sequence[Sequence[int]], stride: int) -> tuple[Any, tuple[int, ...]]:
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
