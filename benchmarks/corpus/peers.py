"""The contenders of the corpus: Motet and its peers. Each prepares rows for a number of threads or raises `Absent`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.row import TOLERANCES, Row, RowMajor
from benchmarks.corpus.subject import Array, load_facts, load_inputs
from benchmarks.peers import Absent, Call, touched_like

Read = Callable[[Any], Sequence[Array]]  # a call's result as arrays
DEFAULT_TARGET = "host{cpu=native}"


class Peer:
    """A contender. `package` must be installed; `module` is its module if the name differs. `precise` means that it
    computes in the row's dtype."""

    name = ""
    package = ""
    module = ""
    precise = True

    def allowed(self, row: Row) -> float:
        return row.allowed

    def start(self, threads: int) -> None:
        """Initialise the contender; called once, before all other methods."""

    def prepare(self, row: Row, folder: Path, threads: int) -> tuple[Call, Read]:
        raise NotImplementedError


class Motet(Peer):
    name = "Motet"
    package = "motet"

    def __init__(self, target: str = DEFAULT_TARGET) -> None:
        self.target = target
        self.session: Any = None
        self.inputs: Sequence[Array] = ()

    def prepare(self, row: Row, folder: Path, threads: int) -> tuple[Call, Read]:
        import motet

        model = folder / row.file / "model.onnx"
        if model.exists():
            artifact = motet.compile(model, devices=self.target)
        else:
            module, tensors = row.module()
            artifact = motet.compile(module, inputs=list(tensors), devices=self.target)
        session = self.session = motet.load(artifact, threads=threads)
        inputs = self.inputs = load_inputs(row, folder)
        first = session(*inputs)
        if isinstance(first, np.ndarray):
            out = touched_like(first)
            return (lambda: session(*inputs, out=out)), lambda result: [result]
        return (lambda: session(*inputs)), lambda result: [np.asarray(each) for each in result]

    def profile(self) -> list[dict[str, Any]]:
        """Seconds, class, work and operations of the kernels, slowest first."""
        from motet.tools.profile import profile_kernels

        session = self.session
        times = profile_kernels(session["main"], self.inputs, session.variants, lambda: None)
        source = {kernel.name: kernel.source for variant in session.variants for kernel in variant.kernels}
        return [{"kernel": time.name, "class": time.kind, "calls": time.calls, "seconds": time.seconds,
                 "flops": time.flops, "bytes": time.bytes, "source": source.get(time.name, "")} for time in times[:8]]


class Torch(Peer):
    """torch in eager mode, whose convolutions, products and recurrent layers are those of oneDNN."""

    name = "torch (oneDNN)"
    package = "torch"

    def start(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def prepare(self, row: Row, folder: Path, threads: int) -> tuple[Call, Read]:
        if row.make is None:
            raise Absent("no such operator")
        module, inputs = row.module()
        call = self.compiled(RowMajor(module), inputs)
        return (lambda: call(*inputs)), self.read

    def compiled(self, module: Any, inputs: Any) -> Any:
        return module

    @staticmethod
    def read(result: Any) -> Sequence[Array]:
        import torch

        tensors = [result] if isinstance(result, torch.Tensor) else list(result)
        return [(tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy() for tensor in tensors]


class TorchCompile(Torch):
    name = "torch.compile"

    def compiled(self, module: Any, inputs: Any) -> Any:
        import torch

        torch.compiler.reset()
        call = torch.compile(module, dynamic=False, options={"freezing": True})  # constants are constants, as for all
        call(*inputs)
        return call


class OnnxRuntime(Peer):
    name = "onnxruntime"
    package = "onnxruntime"

    def prepare(self, row: Row, folder: Path, threads: int) -> tuple[Call, Read]:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 4
        session = ort.InferenceSession(_model(row, folder), options, providers=["CPUExecutionProvider"])
        inputs = load_inputs(row, folder)
        if load_facts(row, folder)["bf16"]:
            raise Absent("takes no bf16 from numpy")
        names = [value.name for value in session.get_inputs()]
        first = session.run(None, dict(zip(names, inputs, strict=True)))
        binding = session.io_binding()
        values = [ort.OrtValue.ortvalue_from_numpy(array) for array in inputs]
        for name, value in zip(names, values, strict=True):
            binding.bind_ortvalue_input(name, value)
        results = [ort.OrtValue.ortvalue_from_numpy(touched_like(array)) for array in first]
        for value, result in zip(session.get_outputs(), results, strict=True):
            binding.bind_ortvalue_output(value.name, result)

        def run(kept: object = values) -> Any:
            session.run_with_iobinding(binding)
            return results

        return run, lambda found: [value.numpy() for value in found]


class OpenVino(Peer):
    name = "OpenVINO"
    package = "openvino"

    def properties(self, row: Row) -> dict[str, str]:
        return {"INFERENCE_PRECISION_HINT": {"bf16": "bf16", "f16": "f16"}.get(row.dtype, "f32")}

    def prepare(self, row: Row, folder: Path, threads: int) -> tuple[Call, Read]:
        import ml_dtypes
        import openvino as ov

        if row.dtype == "f64":
            raise Absent("computes in f32")
        bf16 = np.dtype(ml_dtypes.bfloat16)
        inputs = [np.ascontiguousarray(array) for array in load_inputs(row, folder)]
        core = ov.Core()
        compiled = core.compile_model(core.read_model(_model(row, folder)), "CPU", {
            "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, **self.properties(row)})
        request = compiled.create_infer_request()
        for index, array in enumerate(inputs):
            tensor = (ov.Tensor(array.view(np.uint16), list(array.shape), ov.Type.bf16) if array.dtype == bf16
                      else ov.Tensor(array, shared_memory=True))
            request.set_input_tensor(index, tensor)
        request.infer()
        count = len(compiled.outputs)
        results = [touched_like(request.get_output_tensor(index).data) for index in range(count)]
        short = [output.element_type == ov.Type.bf16 for output in compiled.outputs]  # numpy sees f16
        if all(output.partial_shape.is_static for output in compiled.outputs) and not any(short):
            for index, array in enumerate(results):
                request.set_output_tensor(index, ov.Tensor(array, shared_memory=True))

        def run(kept: object = (compiled, inputs, results)) -> Any:  # the request keeps none of them alive
            request.infer()
            return request

        def read(found: Any) -> Sequence[Array]:
            arrays = [found.get_output_tensor(index).data.copy() for index in range(count)]
            return [array.view(bf16) if is_short else array for array, is_short in zip(arrays, short, strict=True)]

        return run, read


class OpenVinoDefault(OpenVino):
    """OpenVINO in its default precision: bf16 if the processor supports it."""

    name = "OpenVINO default"
    precise = False

    def allowed(self, row: Row) -> float:
        return max(row.allowed, TOLERANCES["bf16"])

    def properties(self, row: Row) -> dict[str, str]:
        return {}


class Ggml(Peer):
    """llama.cpp's products with 4-bit weights; the other operand is rounded to 8 bits."""

    name = "ggml"
    package = "libggml-python"
    module = "libggml"
    precise = False

    def allowed(self, row: Row) -> float:
        return 2e-2

    def start(self, threads: int) -> None:
        from benchmarks.corpus.ggml import Library

        self.library = Library()
        self.pool = self.library.pool(threads)

    def prepare(self, row: Row, folder: Path, threads: int) -> tuple[Call, Read]:
        from benchmarks.corpus import ggml

        call, results = ggml.prepare(row, folder, self.library, self.pool, threads)
        return call, lambda _: results


PEERS: Sequence[type[Peer]] = (Motet, Torch, TorchCompile, OnnxRuntime, OpenVino, OpenVinoDefault, Ggml)
IMPRECISE = frozenset(kind.name for kind in PEERS if not kind.precise)


def _model(row: Row, folder: Path) -> str:
    file = folder / row.file / "model.onnx"
    if not file.exists():
        raise Absent(f"torch does not export it to ONNX: {load_facts(row, folder).get('not exported', '')}")
    return str(file)
