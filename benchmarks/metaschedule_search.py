"""Searches one operator by TVM's MetaSchedule: the loops as they are, then what its evolutionary search proposes.

    XTC_PYTHON -m benchmarks.metaschedule_search < request.json     prints lines as `xtc_search` does

The module runs without Motet, in an environment with apache-tvm and numpy; `benchmarks.lab_peers` starts it. Candidates
are compiled and measured in this process: each process of TVM's own builder would first parse all intrinsics that TVM
knows, which takes longer than its limit of 30 s on a slow machine. The cost model is TVM's default, xgb, if there is
xgboost, otherwise random.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.xtc_search import expected, report

BATCH = 16  # trials between updates of the cost model


def _function(operator: str, shapes: Sequence[Sequence[int]], stride: int) -> Any:
    """TVM's loops of an operator, with its operands and its result as arguments."""
    te, topi = (importlib.import_module(f"tvm.{name}") for name in ("te", "topi"))
    operands = [te.placeholder(shape, name=name) for shape, name in zip(shapes, "AB", strict=False)]
    if operator == "softmax":
        return te.create_prim_func([*operands, topi.nn.softmax(operands[0], axis=1)])
    a, b = operands
    if operator == "conv2d":
        return te.create_prim_func([a, b, topi.nn.conv2d(a, b, stride, 0, 1, "NHWC", "HWIO")])
    if operator == "depthwise_conv2d":
        (n, h, w, c), (r, s, _) = shapes
        rows, columns = (te.reduce_axis((0, extent)) for extent in (r, s))
        return te.create_prim_func([a, b, te.compute(
            (n, (h - r) // stride + 1, (w - s) // stride + 1, c),
            lambda i, y, x, z: te.sum(a[i, y * stride + rows, x * stride + columns, z] * b[rows, columns, z],
                                      axis=[rows, columns]))])
    k = te.reduce_axis((0, shapes[0][1]), name="k")
    product = te.compute((shapes[0][0], shapes[1][1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
    return te.create_prim_func([a, b, topi.nn.relu(product) if operator == "matmul_relu" else product])


class _Bench:
    """Compiles modules and measures them on the same operands."""

    def __init__(self, tvm: Any, target: Any, operands: Sequence[Any], wanted: Any) -> None:
        self._tvm, self._target, self._wanted = tvm, target, wanted
        self._arguments = [tvm.runtime.tensor(each) for each in (*operands, np.zeros(wanted.shape, np.float32))]

    def seconds(self, module: Any) -> float | None:
        """The best of three samples, also printed; None if the module does not compile or is wrong."""
        def measured() -> tuple[float, Any]:
            made = self._tvm.compile(module, target=self._target).mod
            timed = made.time_evaluator("main", self._tvm.cpu(), number=1, repeat=3, min_repeat_ms=5)
            return float(min(timed(*self._arguments).results)), self._arguments[-1].numpy()

        return report(measured, self._wanted)


def _search(tvm: Any, module: Any, target: Any, bench: _Bench, given: dict[str, Any]) -> None:
    meta: Any = importlib.import_module("tvm.s_tir.meta_schedule")
    context = meta.TuneContext(
        module, target=target, space_generator="post-order-apply", search_strategy="evolutionary",
        num_threads=given["threads"], rand_state=1, task_name="main")
    known = meta.database.MemoryDatabase()
    cost = (meta.cost_model.XGBModel(num_tuning_cores=given["threads"])
            if importlib.util.find_spec("xgboost") is not None else meta.cost_model.RandomModel())
    workload = known.commit_workload(module)
    context.pre_tuning(given["trials"], num_trials_per_iter=min(BATCH, given["trials"]), database=known,
                       design_spaces=context.generate_design_space(), cost_model=cost)
    end = time.monotonic() + given["seconds"]
    while time.monotonic() < end and (candidates := context.generate_measure_candidates()):
        results: list[Any] = []
        for each in candidates:
            seconds = bench.seconds(each.sch.mod)
            results.append(meta.runner.RunnerResult([1e10 if seconds is None else seconds], None))
            known.commit_tuning_record(meta.database.TuningRecord(
                each.sch.trace, workload, results[-1].run_secs, target, each.args_info))
        context.notify_runner_results(candidates, results)
        cost.update(context, candidates, results)


def _main() -> None:
    given = json.loads(sys.stdin.read())
    operands = [np.load(file) for file in given["operands"]]
    tvm: Any = importlib.import_module("tvm")
    function = _function(given["operator"], [each.shape for each in operands], given["stride"])
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": given["threads"]})
    bench = _Bench(tvm, target, operands, expected(given["operator"], operands, given["stride"]))
    bench.seconds(module)
    if importlib.util.find_spec("tvm.s_tir.meta_schedule") is None:
        raise SystemExit(f"TVM {tvm.__version__} has no MetaSchedule; expected 0.24 or newer, which have "
                         "tvm.s_tir.meta_schedule")
    _search(tvm, module, target, bench, given)


if __name__ == "__main__":
    _main()
