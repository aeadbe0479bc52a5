"""Whole networks in f32, bf16 and int8, beside onnxruntime and OpenVINO: `benchmarks.run --networks f32,bf16,int8`.

Networks have random weights (`examples/models.py`). In f32 and bf16 all contenders get the same model; bf16 is the
option of Motet and the hint of OpenVINO, and onnxruntime has none. In int8 all get one file, which onnxruntime's static
quantiser writes (QDQ, a scale for each filter, unsigned activations). Contenders run alternately in one process on the
given cores, so that other work on the machine slows all of them; the fastest calls are compared.

Errors are relative to the largest value of a reference: onnxruntime without optimisations, in f32 for f32 and bf16, of
the quantised model in int8, where a step of the last quantisation is about 1/128.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from examples import models

import motet

Call = Callable[[], Sequence[np.ndarray]]
PRECISIONS = ("f32", "bf16", "int8")
NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "ResNet-18": models.resnet18,
    "ResNet-50": models.resnet50,
    "MobileNetV2": models.mobilenet_v2,
    "BERT, 4 layers of 256, 128 tokens": lambda: models.bert(1, 128, 256, 4, 4, 5000),
}


@dataclass
class Measured:
    """One network in one precision: seconds of the fastest call and the error of each contender, or why there is
    none."""

    network: str
    precision: str
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    errors: dict[str, float] = field(default_factory=dict[str, float])
    absent: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def ratio(self) -> float | None:
        """The fastest peer's time over Motet's."""
        peers = [value for name, value in self.seconds.items() if name != "Motet"]
        return min(peers) / self.seconds["Motet"] if peers and "Motet" in self.seconds else None


# -- models ----------------------------------------------------------------------------------------------


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Random inputs: normal floats, and indices below 100."""
    random, constants = np.random.default_rng(seed), {each.name for each in model.graph.initializer}
    found: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value or 1 for d in tensor.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        is_float = np.issubdtype(kind, np.floating)
        array = random.standard_normal(shape) if is_float else random.integers(0, 100, shape)
        found[value.name] = array.astype(kind)
    return found


def quantised(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """`model` in 8 bits by onnxruntime's static quantiser, with the ranges of two random inputs."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Inputs:
        left = [inputs_of(model, seed) for seed in (0, 1)]  # noqa: RUF012

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    source, prepared, made = (str(folder / f"{name}.onnx") for name in ("source", "prepared", "quantised"))
    onnx.save(model, source)
    quant_pre_process(source, prepared)
    quantize_static(prepared, made, Inputs(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return onnx.load(made)


# -- contenders ------------------------------------------------------------------------------------------


def _motet(model: onnx.ModelProto, inputs: dict[str, np.ndarray], precision: str, threads: int) -> Call:
    options = {"precision": "bf16"} if precision == "bf16" else {}
    session = motet.load(motet.compile(model, options=options), threads=threads)
    given = list(inputs.values())

    def call() -> Sequence[np.ndarray]:
        result = session(*given)
        return result if isinstance(result, (tuple, list)) else [result]

    return call


def _onnxruntime(model: onnx.ModelProto, inputs: dict[str, np.ndarray], precision: str, threads: int) -> Call:
    if precision == "bf16":
        raise LookupError("no bf16 on this processor")
    session = _session(model, threads, optimised=True)
    return lambda: session.run(None, inputs)


def _session(model: onnx.ModelProto, threads: int, optimised: bool) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # contenders share the cores
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _openvino(model: onnx.ModelProto, inputs: dict[str, np.ndarray], precision: str, threads: int) -> Call:
    import openvino as ov

    core = ov.Core()
    compiled = core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU", {
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32", "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
    })
    request = compiled.create_infer_request()
    given = [ov.Tensor(array) for array in inputs.values()]
    for index, tensor in enumerate(given):
        request.set_input_tensor(index, tensor)

    def call() -> Sequence[np.ndarray]:
        request.infer()
        return [request.get_output_tensor(index).data for index in range(len(compiled.outputs))]

    return call


CONTENDERS: dict[str, Callable[[onnx.ModelProto, dict[str, np.ndarray], str, int], Call]] = {
    "Motet": _motet, "onnxruntime": _onnxruntime, "OpenVINO": _openvino,
}  # fmt: skip


# -- measuring -------------------------------------------------------------------------------------------


def measure(network: str, precision: str, threads: int, rounds: int) -> Measured:
    """Time all contenders on `network`; one that fails is absent, with the reason."""
    row, model = Measured(network, precision), NETWORKS[network]()
    if precision == "int8":
        with tempfile.TemporaryDirectory(prefix="motet-quantise-") as folder:
            model = quantised(model, Path(folder))
    inputs = inputs_of(model, 2)
    reference = [np.asarray(each, np.float64) for each in _session(model, threads, optimised=False).run(None, inputs)]
    calls: dict[str, Call] = {}
    for name, contender in CONTENDERS.items():
        try:
            call = contender(model, inputs, precision, threads)
            row.errors[name] = max(map(_error, call(), reference))
            calls[name] = call
        except Exception as error:
            row.absent[name] = str(error).splitlines()[0][:120]
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            for _ in range(4):
                start = time.perf_counter()
                call()
                row.seconds[name] = min(row.seconds.get(name, 1e9), time.perf_counter() - start)
    return row


def _error(found: np.ndarray, wanted: np.ndarray) -> float:
    scale = max(float(np.abs(wanted).max(initial=0)), 1e-30)
    return float(np.abs(np.asarray(found, np.float64) - wanted).max(initial=0)) / scale


def run(precisions: Sequence[str], cores: Sequence[int], rounds: int, say: Callable[[str], None]) -> str:
    """Measure all networks in `precisions` on each number of cores; returns tables in Markdown."""
    available, parts = sorted(os.sched_getaffinity(0)), list[str]()
    for count in cores:
        os.sched_setaffinity(0, set(available[-count:]))
        rows: list[Measured] = []
        for network in NETWORKS:
            for precision in precisions:
                say(f"{count} cores: {network}, {precision}")
                rows.append(measure(network, precision, count, rounds))
        where = "one core" if count == 1 else f"{count} cores"
        parts += [f"### Networks, {where}: fastest call, ms", "", table(rows), ""]
    os.sched_setaffinity(0, set(available))
    return "\n".join(parts)


def table(rows: Sequence[Measured]) -> str:
    """The rows in Markdown; a ratio above 1 means that Motet is faster than all peers."""
    names = list(CONTENDERS)
    lines = [f"| network | precision | {' | '.join(names)} | best peer ÷ Motet | error | least error of a peer |",
             "|---|---|" + "---:|" * (len(names) + 3)]
    for row in rows:
        cells = [f"{row.seconds[name] * 1e3:.2f}" if name in row.seconds else "–" for name in names]
        peers = [error for name, error in row.errors.items() if name != "Motet"]
        numbers = [f"{value:.1e}" if value is not None else "–"
                   for value in (row.errors.get("Motet"), min(peers, default=None))]
        ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"| {' | '.join([row.network, row.precision, *cells, ratio, *numbers])} |")
    notes = [f"- {row.network}, {row.precision}, {name}: {why}" for row in rows for name, why in row.absent.items()
             if why != "no bf16 on this processor"]
    return "\n".join([*lines, *(["", *notes] if notes else [])])
