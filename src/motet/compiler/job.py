"""The messages between a compiler worker and its client: jobs, and the worker's answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from motet.artifact.device_flags import DeviceFlag

REQUEST = "request.msgpack"  # in the job's folder
SOURCE = "source"  # the source, if it is large
RESULT = "result"  # the artifact, or the requested text
TUNINGS = "tunings.json"  # measurements of kernels
ARRAYS = "arrays.npz"  # inputs and results to verify

STAGES = {
    "affinities": "the program as read, with the devices of every operand, result and reader",
    "program": "the frontend's output: linalg on tensors, large constants as parameters",
    "normalised": "canonical linalg.generic, constants hoisted",
    "kernels": "one private function per fused kernel, called from the public ones",
    "scheduled": "buffers, commands and memory plan for each target (JSON)",
    "llvm": "LLVM IR of every kernel for the first target; for a GPU, its source",
    "assembly": "machine code of every kernel for the first target",
}

Oracle = Literal["upstream", "numpy", "onnxruntime", "openvino"]
ORACLES: dict[Oracle, str] = {
    "upstream": "upstream MLIR's plain lowering of the program that Motet read",
    "numpy": "the reference evaluator of the package onnx, of an ONNX model as it stands",
    "onnxruntime": "ONNX Runtime, of an ONNX model as it stands",
    "openvino": "OpenVINO's CPU plugin in f32, of IR as it stands",
}


class PassReports(msgspec.Struct, frozen=True):
    """The requested reports of passes: the program after each of those named in `after`, or after each that changes it,
    and the time of each."""

    after: tuple[str, ...] = ()
    changed: bool = False
    times: bool = False

    def __bool__(self) -> bool:
        return bool(self.after) or self.changed or self.times


NO_REPORTS = PassReports()


Precision = Literal["f32", "bf16", "f16", "int8"]


class Job(msgspec.Struct, frozen=True):
    """`source` is text or bytes; if it is None, `file` is read, which must be in `state`, or else `path`. An artifact
    is written to `result`, or to the job's folder. `stage` is for `emit`, `pipeline` for `optimise`, `function` for
    `verify`. `model` is the file that the source was read from, if any, by which an ONNX model's other files are found;
    `data_files` are their states."""

    kind: Literal["compile", "emit", "optimise", "verify", "list", "waits"]
    path: str
    source: bytes | None = None
    text: bool = False
    format: str = "auto"
    targets: tuple[str, ...] = ()  # full names, `targets/families.py`
    devices: tuple[DeviceFlag, ...] = ()  # device flags other than plain CPU levels
    placement: str = "default"
    places: tuple[tuple[str, str], ...] = ()  # patterns of names in the source, and affinities
    mesh: str = ""  # axes and their devices, `data=2,model=4`; empty for the program's own
    shards: tuple[str, ...] = ()  # `NAMES=AXIS:DIMENSION,…`, `sharding/requests.py`
    rates: str = ""  # rates of devices, JSON, `targets/rates.py`
    memory_limit: int | None = None  # of arenas, bytes
    sequences: str = ""  # elements of an ONNX model's sequence inputs, `frontends/onnx/interface.py`
    separate_siblings: bool = False  # `passes/fuse/group.py`
    strict_tokens: bool = False  # `frontends/gpu/missing_tokens.py`
    unchecked_indices: bool = False  # `codegen/cpu/generic/checks.py`
    precision: Precision = "f32"  # to which operands of f32 products are rounded, `passes/fuse/narrow_products.py`
    tune_schedule: bool = False
    tune_inputs: str = ""  # extents to measure with, `tuning/inputs.py`
    tune: Literal["", "candidates", "measure"] = ""  # of forms of kernels
    library: Literal["tuned", "cublaslt", "none"] = "tuned"  # for products, `tuning/kernels.py`
    schedules: bytes = b""  # given schedules of kernels, `artifact/kernel_schedules.py`
    tunings: bytes = b""  # known measurements, `artifact/tunings.py`
    options: tuple[tuple[str, str], ...] = ()
    stage: str = ""
    pipeline: str = ""
    function: str = ""
    jobs: int = 1
    file: str = ""
    state: tuple[int, int] = (0, 0)  # bytes, and modification time
    model: str = ""
    data_files: dict[str, tuple[int, int]] = {}  # by their names in the model, `external_data.py`
    result: str = ""
    keeps: bool = False  # cache compiled kernels for other jobs
    keep_source: bool = False  # in the artifact, `verify/kept_source.py`
    oracle: Oracle = "upstream"  # of `verify`
    reports: PassReports = NO_REPORTS


class ListedWait(msgspec.Struct, frozen=True):
    """An operation of a GPU or the host that waits for an asynchronous one and need not, or does not and must, with the
    names and places of both; `text` says why."""

    kind: str  # "missing" or "not needed"
    operation: str
    place: str
    other: str
    other_place: str
    text: str


class Message(msgspec.Struct, frozen=True):
    """One line of a worker's output: progress, a warning, a report of passes, or the error that ended it."""

    progress: str = ""
    fraction: float = 0.0
    warning: str = ""
    report: str = ""  # text for standard error
    error: str = ""  # the class's name in `motet.errors`
    text: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    reproducer: str = ""


class VerifyReport(msgspec.Struct, frozen=True):
    """The comparison of results with the oracle's: one line per result, then what is known about a difference."""

    ok: bool
    lines: list[str]
