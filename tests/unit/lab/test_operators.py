import numpy as np
import pytest

import motet
from motet.errors import OptionError
from motet.lab.operator_lists import CONVOLUTIONS, PRODUCTS
from motet.lab.operators import operator_program

RANDOM = np.random.default_rng(7)


def run(spec: str, *arrays: np.ndarray) -> np.ndarray:
    session = motet.load(motet.compile(operator_program(spec)))
    return np.asarray(session(*arrays))


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def windows(image: np.ndarray, filters: np.ndarray, stride: int, pad: int) -> np.ndarray:
    padded = np.pad(image.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    found = np.lib.stride_tricks.sliding_window_view(padded, filters.shape[:2], (1, 2))[:, ::stride, ::stride]
    return np.einsum("nhwcrs,rscf->nhwf", found, filters.astype(np.float64))


def test_products_agree_with_numpy():
    a, b = drawn(7, 3), drawn(3, 5)
    wanted = a.astype(np.float64) @ b
    np.testing.assert_allclose(run("matmul:7x5x3xf32", a, b), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run("matmul_relu:7x5x3", a, b), np.maximum(wanted, 0), rtol=1e-5, atol=1e-5)


def test_convolutions_agree_with_numpy():
    image, filters = drawn(1, 9, 8, 3), drawn(3, 3, 3, 5)
    found = run("conv2d:1x9x8x3,3x3x3x5:stride=2:pad=1", image, filters)
    np.testing.assert_allclose(found, windows(image, filters, 2, 1), rtol=1e-4, atol=1e-4)


def test_rows_and_movement_agree_with_numpy():
    a = drawn(5, 9)
    wide = a.astype(np.float64)
    exponents = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(run("softmax:5x9", a), exponents / exponents.sum(1, keepdims=True), rtol=1e-5)
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(run("layernorm:5x9", a), normal, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run("sum:5x9", a), wide.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(run("transpose:5x9:perm=1,0", a), a.T)
    np.testing.assert_array_equal(run("pad:5x9:low=1,0:high=2,3", a), np.pad(a, ((1, 2), (0, 3))))


@pytest.mark.parametrize("table, name", [(PRODUCTS, "matmul"), (CONVOLUTIONS, "conv2d")])
def test_every_named_size_is_a_program(table: dict[str, str], name: str):
    for size in table:
        assert "func.func @main" in operator_program(f"{name}:{size}")


@pytest.mark.parametrize("spec, words", [
    ("matmull:3x3x3", "no operator matmull; expected one of matmul"),
    ("matmul:3x3", "expected the shapes MxNxK"),
    ("matmul:3x3x3xf31", "dtype f31"),
    ("matmul:3x0x3", "an extent is 0"),
    ("matmul:3x-3x3", "is no shape"),
    ("conv2d:1x5x5x3,3x3x4x8", "the image has 3 channels, the filters 4"),
    ("conv2d:1x2x2x3,3x3x3x8", "windows of 3x3 do not fit"),
    ("conv2d:1x5x5x3,3x3x3x8:stride=0", "stride=0"),
    ("conv2d:1x5x5x3,3x3x3x8:dilation=2", "unknown; this operator has stride=N, pad=N"),
    ("transpose:3x4:perm=0,0", "expected an order of 0, 1"),
    ("pad:3x4:low=1", "one for each axis"),
])  # fmt: skip
def test_wrong_specifications_say_what_was_expected(spec: str, words: str):
    with pytest.raises(OptionError, match=words.replace("(", r"\(")):
        operator_program(spec)
