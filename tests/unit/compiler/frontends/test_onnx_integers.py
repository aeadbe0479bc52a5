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
