"""The process of one contender: reads commands as lines of JSON, and answers each with one line.

    {"do": "build" | "prepare", "workload": NAME}   {"do": "round", "seconds": S}   {"do": "limits"}
    {"do": "reference", "workload": NAME}           {"do": "motet"}

Started as `-m benchmarks.contender NAME THREADS FOLDER` on its cores. Output of libraries goes to stderr.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.peers import CONTENDERS, Absent, Contender
from benchmarks.workloads import WORKLOADS, Workload

NAMED = {workload.name: workload for workload in WORKLOADS}
QUIET = 0.003  # seconds in which threads of the previous contender fall asleep
BATCH = 100e-6  # shorter calls are timed in batches


class Process:
    """One contender, and its current workload."""

    def __init__(self, contender: Contender, threads: int, folder: Path) -> None:
        self.contender, self.threads, self.folder = contender, threads, folder
        self.call: Any = None

    def build(self, workload: Workload) -> dict[str, Any]:
        start = time.perf_counter()
        self.contender.build(workload, self._model(workload), self.folder)
        return {"seconds": time.perf_counter() - start}

    def prepare(self, workload: Workload) -> dict[str, Any]:
        self.call = None
        model = self._model(workload)
        inputs = workload.inputs(model)
        start = time.perf_counter()
        call = self.contender.prepare(workload, model, inputs, self.threads, self.folder)
        seconds = time.perf_counter() - start
        result = self.contender.array(call())
        reference = np.load(self.folder / f"{workload.name}.npy", mmap_mode="r")
        if result.shape != reference.shape:
            return {"wrong": f"shape {result.shape}, expected {reference.shape}"}
        scale = max(1.0, float(np.abs(reference).max()))
        error = float(np.abs(np.subtract(result, reference, dtype=np.float64)).max()) / scale
        if not error <= workload.tolerance:
            return {"wrong": f"off by {error:.1e}"}
        self.call = call
        return {"seconds": seconds, "error": error}

    def round(self, seconds: float) -> dict[str, Any]:
        """Times of calls for about `seconds`, at least three; the first calls are warm-up."""
        call = self.call
        time.sleep(QUIET)
        call()
        start = time.perf_counter()
        call()
        once = time.perf_counter() - start
        number = 1 if once > BATCH else max(1, int(2 * BATCH / max(once, 1e-7)))
        times: list[float] = []
        end = start + seconds
        while len(times) < 3 or (time.perf_counter() < end and len(times) < 1000):
            start = time.perf_counter()
            for _ in range(number):
                call()
            times.append((time.perf_counter() - start) / number)
        return {"times": times}

    def _model(self, workload: Workload) -> onnx.ModelProto:
        return onnx.load(str(self.folder / f"{workload.name}.onnx"))


def reference(workload: Workload, folder: Path) -> dict[str, Any]:
    """Write the model and its result: by numpy in float64, or by torch in float64, node by node."""
    model = workload.model()
    onnx.save(model, str(folder / f"{workload.name}.onnx"))
    inputs = workload.inputs(model)
    if workload.numpy_run is not None:
        wide = inputs if workload.ops == "int8" else [array.astype(np.float64) for array in inputs]
        result = workload.numpy_run(wide, None)
    else:
        import torch

        from benchmarks.torch_graph import TorchGraph

        with torch.no_grad():
            graph = TorchGraph(model).eval().double()
            result = graph(*(torch.from_numpy(array).double() for array in inputs)).numpy()
    np.save(folder / f"{workload.name}.npy", result if workload.ops == "int8" else result.astype(np.float32))
    return {}


def motet_costs(folder: Path) -> dict[str, Any]:
    """Compile time, load time and memory of ResNet-18. Peak memory is this process's, minus the memory in use
    before."""
    import motet

    workload = NAMED["resnet18"]
    model = onnx.load(str(folder / "resnet18.onnx"))
    (x,) = workload.inputs(model)
    os.environ["MOTET_CACHE_DIR"] = str(folder / "cache")
    seconds: dict[str, float] = {}
    for name in ("cold", "cached"):
        start = time.perf_counter()
        artifact = motet.compile(model)
        seconds[name] = time.perf_counter() - start
    file = str(folder / "resnet18.motet")
    artifact.save(file)
    del artifact, model
    motet.load(file).close()
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    start = time.perf_counter()
    session = motet.load(file)
    seconds["load"] = time.perf_counter() - start
    start = time.perf_counter()
    result = session(x)
    seconds["first call"] = time.perf_counter() - start
    held = session.memory
    return {"seconds": seconds, "peak": _peak() - before, "held": [held.parameters, held.arena, held.results],
            "size": Path(file).stat().st_size, "result": int(result.nbytes)}


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, threads, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    process: Process | None = None
    for line in sys.stdin:
        command = json.loads(line)
        do, workload = command["do"], NAMED.get(command.get("workload", ""))
        try:
            if do == "limits":
                from benchmarks.limits import Limits

                limits = Limits()
                answer = {"peak": limits.peak(threads), "bandwidth": limits.bandwidth(threads)}
            elif do == "reference" and workload is not None:
                answer = reference(workload, folder)
            elif do == "motet":
                answer = motet_costs(folder)
            else:
                if process is None:
                    contender = next(kind for kind in CONTENDERS if kind.name == name)()
                    contender.start(threads)
                    process = Process(contender, threads, folder)
                answer = process.round(command["seconds"]) if workload is None else getattr(process, do)(workload)
        except Absent as absent:
            answer = {"absent": str(absent)}
        except Exception as error:
            answer = {"absent": f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"[:160]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
