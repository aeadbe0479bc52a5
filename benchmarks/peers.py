"""The contenders: each prepares a workload and gives a callable that runs it once, and one that gives its result.

Imports happen when a contender prepares, in a process whose thread counts are already set.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.workloads import Workload

Run = Callable[[], np.ndarray]


class Absent(Exception):
    """Why a contender does not take part in a row."""


def motet(work: Workload, threads: int) -> Run:
    import motet as package

    session = package.load(package.compile(work.onnx), threads=threads)
    inputs, function = work.inputs, session.main
    return lambda: function(*inputs)


def motet_out(work: Workload, threads: int) -> Run:
    """Results into memory that the caller keeps."""
    import motet as package

    session = package.load(package.compile(work.onnx), threads=threads)
    inputs, function = work.inputs, session.main
    out = np.empty_like(function(*inputs))
    return lambda: function(*inputs, out=out)


def numpy(work: Workload, threads: int) -> Run:
    if work.reference is None:
        raise Absent("not written")
    reference, inputs = work.reference, work.inputs
    return lambda: reference(inputs)


def _torch_module(work: Workload, threads: int) -> object:
    import onnx
    import torch

    from benchmarks.torch_graph import OnnxModule

    torch.set_num_threads(threads)
    return OnnxModule(onnx.load_from_string(work.onnx)).eval()


def torch_eager(work: Workload, threads: int) -> Run:
    import torch

    module = _torch_module(work, threads)
    inputs = [torch.from_numpy(a) for a in work.inputs]

    def run() -> np.ndarray:
        with torch.inference_mode():
            return module(*inputs).numpy()  # type: ignore[operator]

    return run


def torch_compile(work: Workload, threads: int) -> Run:
    import torch

    module = torch.compile(_torch_module(work, threads))  # type: ignore[arg-type]
    inputs = [torch.from_numpy(a) for a in work.inputs]

    def run() -> np.ndarray:
        with torch.inference_mode():
            return module(*inputs).numpy()  # type: ignore[operator]

    return run


def onnxruntime(work: Workload, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(work.onnx, options, providers=["CPUExecutionProvider"])
    feed = {i.name: a for i, a in zip(session.get_inputs(), work.inputs, strict=True)}
    return lambda: session.run(None, feed)[0]


def openvino(work: Workload, threads: int) -> Run:
    import openvino as ov

    core = ov.Core()
    compiled = core.compile_model(
        core.read_model(work.onnx), "CPU",
        {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"},
    )
    request = compiled.create_infer_request()
    for index, array in enumerate(work.inputs):
        request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))

    def run() -> np.ndarray:
        request.infer()
        return request.get_output_tensor(0).data

    return run


IREE_FLAGS = (
    "--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling",
    "--iree-llvmcpu-enable-ukernels=all",
)


def iree(work: Workload, threads: int) -> Run:
    import iree.runtime as rt

    with tempfile.TemporaryDirectory() as folder:
        model, text, module = (Path(folder) / name for name in ("m.onnx", "m.mlir", "m.vmfb"))
        model.write_bytes(work.onnx)
        for command in (
            [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(model), "-o", str(text)],
            [str(Path(sys.executable).parent / "iree-compile"), str(text), *IREE_FLAGS, "-o", str(module)],
        ):
            done = subprocess.run(command, capture_output=True, timeout=180, check=False)
            if done.returncode:
                raise Absent(done.stderr.decode(errors="replace").strip().splitlines()[-1][:80])
        rt.flags.parse_flags(f"--task_topology_group_count={threads}")
        config = rt.Config("local-task" if threads > 1 else "local-sync")
        context = rt.SystemContext(config=config)
        context.add_vm_module(rt.VmModule.copy_buffer(context.instance, module.read_bytes()))
    bound = context.modules.module
    function = next(bound[name] for name in bound.vm_module.function_names if "$" not in name and not name.startswith("__"))
    device_inputs = [rt.asdevicearray(config.device, a) for a in work.inputs]
    return lambda: function(*device_inputs).to_host()


PEERS: dict[str, Callable[[Workload, int], Run]] = {
    "motet": motet, "motet out=": motet_out, "numpy": numpy, "torch eager": torch_eager, "torch.compile": torch_compile,
    "onnxruntime": onnxruntime, "OpenVINO": openvino, "IREE": iree,
}
