"""A process in which Triton's interpreter runs programs on numpy arrays, written as their sources say.

Started with TRITON_INTERPRET=1; jobs and answers are pickled on its standard input and output. What Triton takes from
libdevice, which the interpreter lacks, is numpy's here.
"""

from __future__ import annotations

import importlib.util
import math
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np


class Pointer:
    """What the interpreter takes a tensor of torch for."""

    def __init__(self, address: int, dtype: str) -> None:
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self.address

    def untyped_storage(self) -> Pointer:
        return self

    def cpu(self) -> Pointer:
        return self

    def new_empty(self, size: int, device: str) -> Pointer:
        return Pointer(self.address, self.dtype)

    def set_(self, storage: Pointer, *geometry: Any) -> None:
        self.address = storage.address

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def stride(self) -> tuple[int, ...]:
        return ()

    def copy_(self, other: Pointer) -> None:
        pass


class Library:
    """Functions of libdevice by numpy."""

    def __init__(self) -> None:
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        def elementwise(function: Any) -> Any:
            def call(*operands: Any) -> Any:
                data = [operand.handle.data for operand in operands]
                kind = max(operands, key=lambda operand: len(operand.shape)).type
                found = np.asarray(function(*data)).astype(data[0].dtype)
                return tl.core.tensor(TensorHandle(found, operands[0].dtype), kind)

            return call

        def erfc(x: np.ndarray) -> np.ndarray:
            return np.vectorize(math.erfc)(x)

        named = {
            "tanh": np.tanh, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
            "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "log1p": np.log1p,
            "expm1": np.expm1, "log10": np.log10, "cbrt": lambda x: np.cbrt(flushed(x)), "pow": np.power,
            "atan2": np.arctan2, "erfc": erfc,
            "trunc": np.trunc, "rint": np.rint, "copysign": np.copysign, "fmod": np.fmod,
            "fast_expf": np.exp, "fast_dividef": np.divide,
            "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
        }
        for name, function in named.items():
            setattr(self, name, elementwise(function))


def teach_bfloat16() -> None:
    """The interpreter keeps bf16 as its bits, which it multiplies as if they were numbers, and cuts floats off where
    GPUs round them."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    original = InterpreterBuilder.create_dot

    def widened(handle: Any) -> Any:
        import triton.language as tl

        if handle.dtype != tl.bfloat16:
            return handle
        return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(self, widened(a), widened(b), *rest)

    InterpreterBuilder.create_dot = create_dot
    shorten = InterpreterBuilder.create_fp_trunc

    def create_fp_trunc(self: Any, source: Any, kind: Any) -> Any:
        import triton.language as tl

        if kind.scalar != tl.bfloat16 or source.dtype != tl.float32:
            return shorten(self, source, kind)
        bits = source.data.astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
        return TensorHandle(bits, tl.bfloat16)

    InterpreterBuilder.create_fp_trunc = create_fp_trunc


def flushed(x: np.ndarray) -> np.ndarray:
    """What GPUs' functions get of subnormal numbers of f32: 0."""
    if x.dtype != np.float32:
        return x
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def teach_flushing() -> None:
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def of_flushed(function: Any) -> Any:
        return lambda self, x: TensorHandle(function(flushed(x.data)), x.dtype.scalar)

    functions = {"floor": np.floor, "ceil": np.ceil, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}
    for name, function in functions.items():
        setattr(InterpreterBuilder, f"create_{name}", of_flushed(function))


class Same:
    """What inline assembly gives that only hides from the compiler what its operand is."""

    def __init__(self, operand: Any) -> None:
        self.operand = operand

    def get_result(self, number: int) -> Any:
        return self.operand


def teach_assembly() -> None:
    """The only assembly there is adds a zero to pairs of short numbers."""
    from triton.runtime.interpreter import InterpreterBuilder

    def create_inline_asm(self: Any, text: str, constraints: str, operands: list[Any], *rest: Any) -> Same:
        assert "%ctaid.z; add.u32 $0, $1, z" in text and len(operands) == 1
        return Same(operands[0])

    InterpreterBuilder.create_inline_asm = create_inline_asm


def load(source: str, symbol: str, folder: Path) -> Any:
    file = folder / f"{symbol}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(symbol, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "libdevice"):
        module.libdevice = Library()
    return getattr(module, symbol)


def perform(job: dict[str, Any], folder: Path) -> list[np.ndarray]:
    """Run the launches and copies of a job over its memories; the memories afterwards."""
    memories = [np.array(memory) for memory in job["memories"]]
    with np.errstate(all="ignore"):
        for launch in job["launches"]:
            if len(launch) == 2:
                ((origin, begin), (target, start)), count = launch
                memories[target][start : start + count] = memories[origin][begin : begin + count]
                continue
            source, symbol, tasks, buffers, sizes = launch
            function = load(source, symbol, folder)
            pointers = [
                Pointer(memories[index].ctypes.data + offset, dtype) for index, offset, dtype in buffers
            ]
            function[(tasks,)](*pointers, *sizes)
    return memories


def main() -> None:
    teach_bfloat16()
    teach_assembly()
    teach_flushing()
    with tempfile.TemporaryDirectory() as name:
        while True:
            try:
                job = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            try:
                answer: Any = perform(job, Path(name))
            except Exception as error:  # the test shows whatever it was
                import traceback

                answer = f"{error!r}\n{traceback.format_exc()[-2000:]}"
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
