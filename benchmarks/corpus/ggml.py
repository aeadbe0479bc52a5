"""Calls ggml, the kernels of llama.cpp, through its C interface, as a peer for 4-bit weights.

Weights have the format Q4_0: blocks of 32 4-bit numbers with an f16 scale. ggml rounds the other operand to 8 bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.corpus.row import Row
from benchmarks.corpus.subject import Array, load_inputs
from benchmarks.peers import Absent, Call

_F32, _Q4_0 = 0, 2  # enum ggml_type
_PARAMETERS_BYTES = 4096  # more than struct ggml_threadpool_params has


class _InitParameters(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class _Plan(ctypes.Structure):
    """struct ggml_cplan"""

    _fields_ = (("work_size", ctypes.c_size_t), ("work_data", ctypes.c_void_p), ("threads", ctypes.c_int),
                ("pool", ctypes.c_void_p), ("abort", ctypes.c_void_p), ("abort_data", ctypes.c_void_p),
                ("use_ref", ctypes.c_bool))


class Library:
    """The functions used, with their types."""

    def __init__(self) -> None:
        spec = find_spec("libggml")
        assert spec is not None and spec.origin is not None
        folder = next(path.parent for path in Path(spec.origin).parent.rglob("libggml-cpu.so"))
        self.base: Any = ctypes.CDLL(str(folder / "libggml-base.so"), ctypes.RTLD_GLOBAL)
        self.cpu: Any = ctypes.CDLL(str(folder / "libggml-cpu.so"))
        pointer = ctypes.c_void_p
        for library, name, result, arguments in (
            (self.base, "ggml_init", pointer, (_InitParameters,)),
            (self.base, "ggml_new_tensor_2d", pointer, (pointer, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)),
            (self.base, "ggml_mul_mat", pointer, (pointer, pointer, pointer)),
            (self.base, "ggml_new_graph", pointer, (pointer,)),
            (self.base, "ggml_build_forward_expand", None, (pointer, pointer)),
            (self.base, "ggml_get_data", pointer, (pointer,)),
            (self.base, "ggml_nbytes", ctypes.c_size_t, (pointer,)),
            (self.base, "ggml_threadpool_params_init", None, (pointer, ctypes.c_int)),
            (self.cpu, "ggml_cpu_init", None, ()),
            (self.cpu, "ggml_threadpool_new", pointer, (pointer,)),
            (self.cpu, "ggml_graph_plan", _Plan, (pointer, ctypes.c_int, pointer)),
            (self.cpu, "ggml_graph_compute", ctypes.c_int, (pointer, ctypes.POINTER(_Plan))),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self.cpu.ggml_cpu_init()

    def pool(self, threads: int) -> int:
        parameters = ctypes.create_string_buffer(_PARAMETERS_BYTES)
        self.base.ggml_threadpool_params_init(parameters, threads)
        return self.cpu.ggml_threadpool_new(parameters)

    def product(self, x: Array, weights: Array, columns: int, pool: int, threads: int) -> tuple[Call, Array]:
        """A call that multiplies `x` (M×K, f32) by Q4_0 `weights` (N×K as bytes), and the array of its result."""
        base = self.base
        m, k = x.shape
        size = x.nbytes + weights.nbytes + 4 * m * columns + (4 << 20)
        context = base.ggml_init(_InitParameters(size, None, False))
        w = base.ggml_new_tensor_2d(context, _Q4_0, k, columns)
        right = base.ggml_new_tensor_2d(context, _F32, k, m)
        if base.ggml_nbytes(w) != weights.nbytes:
            raise Absent(f"its Q4_0 has another layout: {base.ggml_nbytes(w)} bytes, expected {weights.nbytes}")
        ctypes.memmove(base.ggml_get_data(w), weights.ctypes.data, weights.nbytes)
        ctypes.memmove(base.ggml_get_data(right), x.ctypes.data, x.nbytes)
        result, graph = base.ggml_mul_mat(context, w, right), base.ggml_new_graph(context)
        base.ggml_build_forward_expand(graph, result)
        plan = self.cpu.ggml_graph_plan(graph, threads, pool)
        work = np.zeros(plan.work_size + 64, np.uint8)
        plan.work_data = work.ctypes.data
        memory = (ctypes.c_float * (m * columns)).from_address(base.ggml_get_data(result))
        compute, given = self.cpu.ggml_graph_compute, ctypes.byref(plan)

        def run(kept: object = work) -> None:  # the plan points into it
            compute(graph, given)

        return run, np.frombuffer(memory, np.float32).reshape(m, columns)


def blocks_of(model: onnx.ModelProto) -> tuple[Array, int]:
    """The weights of a model of one MatMulNBits in Q4_0, and their number of columns."""
    packed, scales = (numpy_helper.to_array(each) for each in model.graph.initializer)
    columns, count, half = packed.shape
    numbers = np.stack([packed & 15, packed >> 4], -1).reshape(columns, count, 2 * half)
    blocks = np.empty((columns, count, 2 + half), np.uint8)
    blocks[..., :2] = scales.reshape(columns, count, 1).astype(np.float16).view(np.uint8)
    blocks[..., 2:] = numbers[..., :half] | numbers[..., half:] << 4
    return blocks, columns


def prepare(row: Row, folder: Path, library: Library, pool: int, threads: int) -> tuple[Call, Sequence[Array]]:
    """The row's call and the arrays of its results. Raises Absent unless the row is a product with 4-bit weights."""
    if row.dtype != "int4":
        raise Absent("no such operator")
    (x,) = load_inputs(row, folder)
    model = onnx.load(str(folder / row.file / "model.onnx"))
    if model.graph.initializer[0].dims[-1] != 16 or x.shape[-1] % 32:
        raise Absent("Q4_0 has blocks of 32")
    weights, columns = blocks_of(model)
    run, result = library.product(x, weights, columns, pool, threads)
    return run, [result]
