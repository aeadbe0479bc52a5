"""IREE on a GPU: rows compiled for its CUDA target, and run by its own runtime (`iree-base-runtime`).

It gets the same ONNX or StableHLO text as Motet. Its driver has separate streams, which PyTorch's events do not cover:
calls are started without waiting, by the asynchronous form of the function, each after the previous one, and timed by
the clock until the last has ended. Inputs are on the device, results in cached blocks. The newest architecture that its
compiler supports is Ada's, whose PTX the driver compiles when the module is loaded.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_rows import Absent, Row, flat

Tensor = torch.Tensor
TARGETS = ("sm_89", "sm_80")  # the first that compiles; it has no Hopper
_AHEAD = 8  # calls in flight; each has memory for its results
_LIMIT = 300  # seconds allowed for compilation
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def compile_row(row: Row, model: bytes, file: Path) -> dict[str, Any]:
    """Compile the row for IREE's CUDA target to `file`. Raises `Absent` with the first error of its compiler."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "row.mlir"
        if row.source:
            source.write_bytes(model)
        else:
            whole = source.with_suffix(".onnx")
            whole.write_bytes(model)
            _command([sys.executable, "-m", "iree.compiler.tools.import_onnx", str(whole), "-o", str(source),
                      "--opset-version", "20"])
        words = [str(Path(sys.executable).with_name("iree-compile")), str(source), "-o", str(file),
                 "--iree-hal-target-device=cuda", "--iree-opt-level=O3"]
        if row.source:
            words += ["--iree-input-type=stablehlo", "--iree-execution-model=async-external"]  # the default for ONNX
        for target in TARGETS:
            try:
                _command([*words, f"--iree-cuda-target={target}"])
            except Absent:
                if target == TARGETS[-1]:
                    raise
            else:
                return {"seconds": time.perf_counter() - begin, "bytes": file.stat().st_size, "target": target}
    raise AssertionError("the last target raises")


def _command(words: list[str]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        raise Absent(f"compiling took more than {_LIMIT} s") from None
    if done.returncode:
        errors = [line.partition("error: ")[2] for line in done.stderr.splitlines() if "error: " in line]
        raise Absent((errors or [f"its compiler ended with {done.returncode}"])[0][:160])


class Iree:
    """The module on the CUDA device; `driver` names another driver of IREE's."""

    def __init__(self, row: Row, module: torch.nn.Module, sets: Sequence[Sequence[Tensor]], file: Path,
                 driver: str = "cuda") -> None:
        try:
            runtime = importlib.import_module("iree.runtime")
        except ImportError as error:
            raise Absent(f"iree-base-runtime is not installed: {error}") from error
        if driver not in runtime.query_available_drivers():
            raise Absent(f"its runtime has no driver {driver!r}")
        self.runtime = runtime
        begin = time.perf_counter()
        # Measured: with the driver's pools, which return memory after each call, calls took up to 2.6 times as long as
        # with a cache of plainly allocated blocks.
        runtime.flags.parse_flags("--cuda_async_allocations=false")
        maker = runtime.get_driver(driver)
        self.device = maker.create_device(maker.query_available_devices()[0], allocators=["caching"])
        config = runtime.Config(device=self.device)
        self.context = runtime.SystemContext(config=config)
        self.context.add_vm_module(runtime.VmModule.mmap(config.vm_instance, str(file)))
        inside = next(each for name, each in self.context.modules.items() if name != "hal").vm_module
        functions = [inside.lookup_function(name) for name in inside.function_names]
        fenced = [each for each in functions if each.name.endswith("$async")
                  or each.reflection.get("iree.abi.model") == "coarse-fences"]
        if not fenced:
            raise Absent("its module has no asynchronous function")
        self.function = fenced[0]
        self.load_seconds = time.perf_counter() - begin
        self.sets = [[self._view(tensor) for tensor in values] for values in sets]
        with torch.no_grad():
            self.meant = [(tuple(each.shape), each.dtype) for each in flat(module(*sets[0]))]
        self.ended = self.device.create_semaphore(0)
        self.count = 0
        self.last: Any = None

    def launch(self, number: int) -> None:
        if self.count >= _AHEAD:
            self.ended.wait(self.count - _AHEAD + 1)
        runtime, values = self.runtime, self.sets[number]
        arguments, self.last = runtime.VmVariantList(len(values) + 2), runtime.VmVariantList(1)
        for value in values:
            arguments.push_ref(value)
        arguments.push_ref(runtime.HalFence.create_at(self.ended, self.count))
        self.count += 1
        arguments.push_ref(runtime.HalFence.create_at(self.ended, self.count))
        self.context.vm_context.invoke(self.function, arguments, self.last)

    def call(self, number: int) -> None:
        self.launch(number)
        self.ended.wait(self.count)

    def begin(self) -> None:
        self.ended.wait(self.count)
        self.since = time.perf_counter()

    def end(self) -> None:
        pass

    def elapsed(self) -> float:
        self.ended.wait(self.count)
        return time.perf_counter() - self.since

    def results(self) -> list[Tensor]:
        """The results of a call on the first set."""
        self.call(0)
        return [self._tensor(index) for index in range(len(self.meant))]

    def _view(self, tensor: Tensor) -> Any:
        """The tensor in IREE's memory."""
        runtime, kinds = self.runtime, self.runtime.HalElementType
        kind = {
            torch.bfloat16: kinds.BFLOAT_16, torch.float16: kinds.FLOAT_16, torch.float32: kinds.FLOAT_32,
            torch.int64: kinds.INT_64, torch.int8: kinds.INT_8, torch.float8_e4m3fn: kinds.FLOAT_8_E4M3_FN,
        }[tensor.dtype]
        words = tensor.detach().contiguous().view(_WORDS[tensor.dtype.itemsize]).cpu()
        return self.device.allocator.allocate_buffer_copy(
            memory_type=runtime.MemoryType.DEVICE_LOCAL,
            allowed_usage=runtime.BufferUsage.DEFAULT | runtime.BufferUsage.MAPPING,
            device=self.device, buffer=words.numpy(), element_type=int(kind))

    def _tensor(self, index: int) -> Tensor:
        runtime, kinds = self.runtime, self.runtime.HalElementType
        shape, dtype = self.meant[index]
        made = self.last.get_as_object(index, runtime.HalBufferView)
        if tuple(made.shape) != shape:
            raise ValueError(f"shape {tuple(made.shape)}; expected {shape}")
        kind = {1: kinds.INT_8, 2: kinds.INT_16, 4: kinds.INT_32, 8: kinds.INT_64}[dtype.itemsize]
        words = runtime.DeviceArray(self.device, runtime.HalBufferView(made.get_buffer(), shape, int(kind))).to_host()
        return torch.from_numpy(words.copy()).view(dtype)
