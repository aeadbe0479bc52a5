"""The contenders: each prepares a workload for a number of threads, or tells why it cannot.

`build` does what does not depend on threads, once (artifacts, modules, in a folder); `prepare` returns a function
without arguments that runs the workload and returns its result in the contender's own form; `array` converts that to
numpy. Contenders are imported when needed.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.workloads import Workload

Call = Callable[[], Any]


class Absent(Exception):
    """Why a contender does not take part."""


class Contender:
    """`memory` tells where results are allocated; `module` must be installed."""

    name = ""
    module = ""
    memory = "its own"

    def start(self, threads: int) -> None:
        """Called once per process, before everything else. Raises Absent."""
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            raise Absent(f"not installed: {error}") from None

    def build(self, workload: Workload, model: onnx.ModelProto, folder: Path) -> None:
        """Compile ahead of time, if the contender does; may use all cores."""

    def prepare(self, workload: Workload, model: onnx.ModelProto, inputs: list[np.ndarray], threads: int,
                folder: Path) -> Call:
        raise NotImplementedError

    def array(self, result: Any) -> np.ndarray:
        return np.asarray(result)


class Motet(Contender):
    name = "Motet"
    module = "motet"
    memory = "the caller's"

    def build(self, workload: Workload, model: onnx.ModelProto, folder: Path) -> None:
        import motet

        motet.compile(model, cache=False).save(str(folder / f"{workload.name}.motet"))

    def prepare(self, workload: Workload, model: onnx.ModelProto, inputs: list[np.ndarray], threads: int,
                folder: Path) -> Call:
        import motet

        session = motet.load(str(folder / f"{workload.name}.motet"), threads=threads)
        out = touched_like(session(*inputs))
        return lambda: session(*inputs, out=out)


class MotetAllocating(Motet):
    """Motet as most callers use it: every call allocates its results."""

    name = "Motet, its memory"
    memory = "its own"

    def build(self, workload: Workload, model: onnx.ModelProto, folder: Path) -> None:
        """Nothing to build: it uses the artifact of `Motet`."""

    def prepare(self, workload: Workload, model: onnx.ModelProto, inputs: list[np.ndarray], threads: int,
                folder: Path) -> Call:
        import motet

        session = motet.load(str(folder / f"{workload.name}.motet"), threads=threads)
        return lambda: session(*inputs)


class Numpy(Contender):
    name = "numpy"
    module = "numpy"
    memory = "the caller's"

    def prepare(self, workload: Workload, model: onnx.ModelProto, inputs: list[np.ndarray], threads: int,
                folder: Path) -> Call:
        run = workload.numpy_run
        if run is None:
            raise Absent("no such operator")
        out = touched_like(run(inputs, None))
        return lambda: run(inputs, out)


class Torch(Contender):
    name = "torch"
    module = "torch"
    memory = "the caller's for single operations that take out="

    def start(self, threads: int) -> None:
        super().start(threads)
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def prepare(self, workload: Workload, model: onnx.ModelProto, inputs: list[np.ndarray], threads: int,
                folder: Path) -> Call:
        import torch

        from benchmarks.torch_graph import TorchGraph

        tensors = [torch.from_numpy(array) for array in inputs]
        if workload.torch_out:
            function = getattr(torch, workload.torch_out)
            axis = (-1,) if workload.torch_out == "softmax" else ()
            out = function(*tensors, *axis)
            return lambda: function(*tensors, *axis, out=out)
        graph = TorchGraph(model).eval()
        return lambda: graph(*tensors)


class TorchCompile(Torch):
    name = "torch.compile"
    memory = "its own"

    def prepare(self, workload: Workload, model: onnx.ModelProto, inputs: list[np.ndarray], threads: int,
                folder: Path) -> Call:
        import torch

        from benchmarks.torch_graph import TorchGraph

        tensors = [torch.from_numpy(array) for array in inputs]
        torch.compiler.reset()
        torch._inductor.config.freezing = True  # with constants frozen, as for all other contenders
        graph = torch.compile(TorchGraph(model).eval(), dynamic=False)
        graph(*tensors)
        return lambda: graph(*tensors)


class OnnxRuntime(Contender):
    name = "onnxruntime"
    module = "onnxruntime"
    memory = "the caller's (bound)"

    def prepare(self, workload: Workload, model: onnx.ModelProto, inputs: list[np.ndarray], threads: int,
                folder: Path) -> Call:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        result = session.get_outputs()[0].name
        names = [value.name for value in session.get_inputs()]
        out = touched_like(session.run(None, dict(zip(names, inputs, strict=True)))[0])
        binding = session.io_binding()
        values = [ort.OrtValue.ortvalue_from_numpy(array) for array in (*inputs, out)]
        for name, value in zip(names, values, strict=False):
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(result, values[-1])

        def run() -> Any:
            session.run_with_iobinding(binding)
            return values[-1]

        return run

    def array(self, result: Any) -> np.ndarray:
        return result.numpy()


class OpenVino(Contender):
    name = "OpenVINO"
    module = "openvino"
    memory = "the caller's (bound)"

    def prepare(self, workload: Workload, model: onnx.ModelProto, inputs: list[np.ndarray], threads: int,
                folder: Path) -> Call:
        import openvino as ov

        file = folder / f"{workload.name}.onnx"
        core = ov.Core()
        compiled = core.compile_model(core.read_model(str(file)), "CPU", {
            "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
        })
        request = compiled.create_infer_request()
        for index, array in enumerate(inputs):
            request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))
        request.infer()
        out = touched_like(request.get_output_tensor(0).data)
        request.set_output_tensor(0, ov.Tensor(out, shared_memory=True))

        kept = (compiled, inputs)  # the request does not keep them alive

        def run(kept: object = kept) -> np.ndarray:
            request.infer()
            return out

        return run


class Iree(Contender):
    name = "IREE"
    module = "iree.compiler"
    memory = "its own, on the device; inputs lie there already"
    FLAGS = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
             "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling",
             "--iree-llvmcpu-enable-ukernels=all")

    def start(self, threads: int) -> None:
        super().start(threads)
        import iree.runtime as runtime

        runtime.flags.parse_flags(f"--task_topology_group_count={threads}")

    def build(self, workload: Workload, model: onnx.ModelProto, folder: Path) -> None:
        source, mlir = folder / f"{workload.name}.onnx", folder / f"{workload.name}.mlir"
        _command([sys.executable, "-m", "iree.compiler.tools.import_onnx", str(source), "-o", str(mlir),
                  "--opset-version", "20"])
        tool = Path(sys.executable).with_name("iree-compile")
        _command([str(tool), str(mlir), "-o", str(folder / f"{workload.name}.vmfb"), *self.FLAGS])

    def prepare(self, workload: Workload, model: onnx.ModelProto, inputs: list[np.ndarray], threads: int,
                folder: Path) -> Call:
        import iree.runtime as runtime

        file = folder / f"{workload.name}.vmfb"
        if not file.exists():
            raise Absent("it did not compile")
        device = runtime.get_device("local-task" if threads > 1 else "local-sync")
        config = runtime.Config(device=device)
        context = runtime.SystemContext(config=config)
        context.add_vm_module(runtime.VmModule.mmap(config.vm_instance, str(file)))
        module = next(m for name, m in context.modules.items() if name != "hal")
        names = [name for name in module.vm_module.function_names if not name.endswith("$async")]
        function = module[next(name for name in names if not name.startswith("__"))]
        arrays = [runtime.asdevicearray(device, array) for array in inputs]
        return lambda: function(*arrays)

    def array(self, result: Any) -> np.ndarray:
        return result.to_host()


CONTENDERS: tuple[type[Contender], ...] = (
    Motet, MotetAllocating, Numpy, Torch, TorchCompile, OnnxRuntime, OpenVino, Iree)


def touched_like(array: Any) -> np.ndarray:
    """Memory for results with its pages mapped, aligned as frameworks prefer."""
    array = np.asarray(array)
    raw = np.zeros(array.nbytes + 64, np.uint8)
    raw += 1
    start = -raw.ctypes.data % 64
    return raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)


def _command(words: list[str]) -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or ["died"]
        raise Absent(lines[0].strip()[-160:])
