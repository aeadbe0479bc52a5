"""Integers of ONNX models: conversions, divisions and remainders of every type, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import motet

KINDS = [np.dtype(f"{sign}int{bits}") for sign in ("u", "") for bits in (8, 16, 32, 64)]


def compiled(op: str, kinds: list[tuple[Any, list[Any]]], result: tuple[Any, list[Any]], **attributes: Any) -> Any:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
        for name, (kind, shape) in zip(["y", "a", "b", "c"], [result, *kinds], strict=False)
    ]
    node = helper.make_node(op, [info.name for info in infos[1:]], ["y"], name="node", **attributes)
    graph = helper.make_graph([node], "g", infos[1:], infos[:1])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return motet.load(motet.compile(model, cache=False))


def numbers(kind: np.dtype[Any], count: int) -> np.ndarray:
    info = np.iinfo(kind)
    ends = np.array([info.max, info.min, info.max // 2, info.max // 2 + 1, info.max - 1], kind)
    drawn = np.random.default_rng(count).integers(info.min, info.max, count, dtype=kind, endpoint=True)
    return np.concatenate([ends, drawn])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_remainder_by_a_scalar(kind: np.dtype[Any]) -> None:
    session = compiled("Mod", [(kind, ["n"]), (kind, [])], (kind, ["n"]))
    a = numbers(kind, 8)
    for divisor in (7, -5) if kind.kind == "i" else (7, np.iinfo(kind).max - 2):
        found = session(a, np.array(divisor, kind))
        assert found.dtype == kind
        np.testing.assert_array_equal(found, np.mod(a, np.array(divisor, kind)))


def test_division_of_unsigned_numbers_broadcasts() -> None:
    session = compiled("Div", [(np.uint16, ["n", 1, 3]), (np.uint16, [4, 1])], (np.uint16, ["n", 4, 3]))
    a = numbers(np.dtype(np.uint16), 4).reshape(3, 1, 3)
    b = np.array([[1], [3], [40000], [65535]], np.uint16)
    np.testing.assert_array_equal(session(a, b), a // b)


@pytest.mark.parametrize("target", [np.uint16, np.uint32, np.uint64, np.int16])
def test_floats_become_whole_numbers_of_dynamic_count(target: Any) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    session = compiled("Cast", [(np.float32, ["n", 3])], (target, ["n", 3]), to=to)
    x = np.array([[0.9, 1.5, 2.0], [100.7, 32767, 0.0]], np.float32)
    found = session(x)
    assert found.dtype == target
    np.testing.assert_array_equal(found, x.astype(target))


def test_large_floats_become_unsigned_numbers_of_64_bits() -> None:
    x = np.array([2.0**63, 2.0**64 - 2.0**40, 2.0**62, 5.0], np.float32)
    session = compiled("Cast", [(np.float32, [4])], (np.uint64, [4]), to=13)
    np.testing.assert_array_equal(session(x), [2**63, 2**64 - 2**40, 2**62, 5])


@pytest.mark.parametrize("exponent", KINDS, ids=str)
@pytest.mark.parametrize("base", [np.int32, np.int64])
def test_powers_are_exact_modulo_the_width(base: Any, exponent: np.dtype[Any]) -> None:
    session = compiled("Pow", [(base, ["n", 1]), (exponent, ["m"])], (base, ["n", "m"]))
    bits = np.iinfo(base).bits
    a = np.array([0, 1, -1, 2, 3, -3, 7, 1000, np.iinfo(base).max, np.iinfo(base).min], base)
    b = np.array([0, 1, 2, 3, 31, 39, 40, 62, 63, 64, 65, 127], exponent)
    wanted = np.array([[pow(int(x), int(y), 1 << bits) for y in b] for x in a], np.uint64).astype(f"u{bits // 8}")
    np.testing.assert_array_equal(session(a[:, None], b), wanted.view(base))
    if exponent.kind == "i":
        below = session(np.array([[1], [-1], [2], [-3]], base), np.array([-1, -2], exponent))
        np.testing.assert_array_equal(below, [[1, 1], [-1, 1], [0, 0], [0, 0]])


def test_elements_that_may_have_any_order_are_the_largest() -> None:
    x = np.random.default_rng(1).permutation(30).astype(np.float32).reshape(3, 10)
    infos = [helper.make_tensor_value_info("x", 1, [3, 10]), helper.make_tensor_value_info("k", 7, [1])]
    results = [helper.make_tensor_value_info("y", 1, None), helper.make_tensor_value_info("p", 7, None)]
    node = helper.make_node("TopK", ["x", "k"], ["y", "p"], sorted=0)
    graph = helper.make_graph([node], "g", infos[:1], results, [helper.make_tensor("k", 7, [1], [4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    largest, places = motet.load(motet.compile(model, cache=False))(x)
    np.testing.assert_array_equal(np.sort(largest), np.sort(x)[:, -4:])
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), largest)
