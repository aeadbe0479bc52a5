"""Which launches are calls of a library: read back with numpy, element by element, from what the record says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate
from tests.unit.compiler.codegen.triton.products import ProductText
from tests.unit.compiler.codegen.triton.texts import convolution, product, softmax

from motet.artifact.dtypes import DTYPES
from motet.artifact.library import LibraryCall, LibraryOperand
from motet.compiler.targets.families import resolve_target

SM_90A = resolve_target("cuda:sm_90a")
TF32 = resolve_target("cuda:sm_90a/tf32")


def calls(text: str, target: Any = SM_90A) -> list[LibraryCall | None]:
    return [program.library for program in generate(text, target).programs.values()]


def matrix(operand: LibraryOperand, buffers: list[np.ndarray], rows: int, columns: int, batch: int) -> np.ndarray:
    """By the record alone."""
    flat = buffers[operand.buffer].ravel()
    b, i, j = np.ix_(range(batch), range(rows), range(columns))
    return flat[operand.offset + b * operand.batch + i * operand.row + j * operand.column].astype("f8")


def run(call: LibraryCall, buffers: list[np.ndarray]) -> np.ndarray:
    sizes = call.rows, call.columns, call.depth
    left = matrix(call.left, buffers, sizes[0], sizes[2], call.batch)
    result = left @ matrix(call.right, buffers, sizes[2], sizes[1], call.batch)
    if call.addend is not None:
        result = result + matrix(call.addend, buffers, sizes[0], sizes[1], call.batch)
    if call.bias is not None:
        result = result + matrix(call.bias, buffers, 1, sizes[1], call.batch)
    if call.activation == "relu":
        result = np.maximum(result, 0)
    if call.activation == "gelu":
        result = result * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (result + 0.044715 * result**3)))
    return result


def meaning(text: ProductText, inputs: list[np.ndarray]) -> np.ndarray:
    """What the program says."""
    left, right, *others = [each.astype("f8") for each in inputs]
    left, right = (x.swapaxes(-1, -2) if turned else x for x, turned in zip((left, right), text.turned, strict=True))
    result = left @ right
    for each in others:
        result = result + each
    if "relu" in text.follows:
        result = np.maximum(result, 0)
    if "gelu" in text.follows:
        result = result * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (result + 0.044715 * result**3)))
    return result


TAKEN = {
    "plain": ProductText(40, 24, 56),
    "odd": ProductText(33, 17, 29, "f16"),
    "bias": ProductText(40, 24, 56, follows=("bias",)),
    "bias, relu": ProductText(40, 24, 56, "f32", follows=("bias", "relu")),
    "relu": ProductText(40, 24, 56, follows=("relu",)),
    "bias, residual": ProductText(40, 24, 56, "f16", follows=("bias", "residual")),
    "residual, gelu": ProductText(40, 24, 56, follows=("residual", "gelu")),
    "bias, gelu, f32": ProductText(40, 24, 56, "f32", follows=("bias", "gelu")),
    "left turned": ProductText(40, 24, 56, turned=(True, False)),
    "right turned": ProductText(40, 24, 56, "f32", turned=(False, True)),
    "both turned, a batch": ProductText(40, 24, 56, batch=3, turned=(True, True), follows=("bias",)),
    "i8": ProductText(40, 24, 56, "i8", turned=(False, True)),
    "f8": ProductText(48, 32, 64, "f8E4M3FN", "bf16", turned=(False, True), follows=("bias",)),
    "f64": ProductText(40, 24, 56, "f64"),
    "to f32": ProductText(40, 24, 56, "bf16", "f32"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_the_record_says_what_the_program_says(name: str) -> None:
    text = TAKEN[name]
    (call,) = calls(text.text)
    assert call is not None
    random = np.random.default_rng(5)
    inputs = [random.integers(-4, 5, shape).astype(DTYPES[dtype]) for shape, dtype in text.shapes]
    found = run(call, [*inputs, np.empty(0)])
    np.testing.assert_allclose(found.reshape(text.shape), meaning(text, inputs), 1e-6, 1e-6)
    assert call.result.dtype == text.stored and call.left.dtype == call.right.dtype == text.dtype
    assert call.result.buffer == len(inputs)
    assert call.precision == {"i8": "i32", "f64": "f64"}.get(text.dtype, "f32")
    assert call.activation == next((word for word in ("relu", "gelu") if word in text.follows), "")


def test_precisions() -> None:
    text = ProductText(40, 24, 56, "f32").text
    assert [call.precision for call in calls(text, TF32) if call] == ["tf32"]
    assert calls(text, resolve_target("cuda:sm_90a/tf32x3")) == [None]
    assert calls(text, resolve_target("hip:gfx942")) == [None]


@pytest.mark.parametrize("text", [
    ProductText(40, 24, 56, follows=("bias", "erf")).text,
    ProductText(40, 24, 56, follows=("bias", "six")).text,
    ProductText(40, 24, 56, "f8E5M2", "f32").text,
    product(64, 72, 40, "i8", "i32"),  # with a bias and the maximum of integers
    product("?", 72, 40, "f16", "f16"),
    convolution((2, 16, 12, 12), 32, 3, 1, 1),
    softmax(64, 512),
])
def test_what_the_library_has_no_words_for(text: str) -> None:
    assert all(call is None for call in calls(text))
