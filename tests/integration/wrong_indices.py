"""Programs whose calls decide indices, and calls with right and wrong ones; `python -m` runs all of one kind.

A process of its own runs them, since what they look for may end it. It prints what is not as expected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import motet
from motet.errors import CallError

Arrays = tuple[np.ndarray, ...]
# What a call is to give, by numpy, and the inputs of right calls and of wrong ones.
Cases = tuple[str, Callable[..., np.ndarray], list[Arrays], list[Arrays]]

X = np.arange(60, dtype=np.float32).reshape(5, 4, 3)


def put(x: np.ndarray, places: Any, values: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[places] = values
    return x


def along(x: np.ndarray, indices: np.ndarray, axis: int) -> Any:
    """The places of indices of one axis, as those of all."""
    return tuple(indices if a == axis else place for a, place in enumerate(np.indices(indices.shape)))


def onnx_cases(dtype: type) -> Iterator[tuple[str, dict[str, Any], Cases]]:
    """Operators with their attributes."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max

    def a(*numbers: Any) -> np.ndarray:
        return np.array(numbers, dtype)

    def column(number: int) -> np.ndarray:
        return np.tile(a([0, number, 4]), (1, 4, 1)).astype(dtype)

    outside = (5, -6, least, most)
    x, row = X, X[:, 0, 0].copy()
    yield "Gather", {}, ("rows", lambda x, i: x[i], [(x, a(0, -5, 4))], [(x, a(0, n, 4)) for n in outside])
    yield "Gather", {"axis": 1}, (
        "inner", lambda x, i: x[:, i], [(x, a(0, -4, 3))], [(x, a(0, n, 3)) for n in (4, -5, least, most)]
    )
    yield "Gather", {}, ("ones", lambda x, i: x[i], [(row, a(0, -5, 4))], [(row, a(0, n, 4)) for n in outside])
    yield "GatherElements", {}, (
        "elements", lambda x, i: x[along(x, i, 0)], [(x, column(-5))], [(x, column(n)) for n in outside]
    )
    yield "ScatterElements", {}, (
        "put", lambda x, i, u: put(x, along(x, i, 0), u), [(x, column(-5), -X[:1])],
        [(x, column(n), -X[:1]) for n in outside],
    )
    if dtype is np.int32:
        return
    wrong = ([0, 4], [0, -5], [5, 0], [-6, 0], [0, least], [most, 0], [2, -9])  # most of them within 5·4 elements
    yield "GatherND", {}, (
        "places", lambda x, i: x[tuple(i.T)], [(x, a([0, -4], [4, 3]))], [(x, a([0, 0], pair)) for pair in wrong]
    )
    yield "ScatterND", {}, (
        "put places", lambda x, i, u: put(x, tuple(i.T), u), [(x, a([0, -4], [4, 3]), -X[0, :2])],
        [(x, a([0, 0], pair), -X[0, :2]) for pair in wrong],
    )


def onnx_model(dtype: type, dynamic: bool) -> tuple[bytes, list[Cases]]:
    """All operators as one model: what one call of it gives wrong indices to, others are given right ones."""
    nodes: list[onnx.NodeProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    found: list[Cases] = []
    for number, (operator, attributes, case) in enumerate(onnx_cases(dtype)):
        names: list[str] = []
        for k, array in enumerate(case[2][0]):
            names.append(f"{number}_{k}")
            kept = operator in ("GatherND", "ScatterND") and k == 1  # how many numbers a place is
            shape = [
                n if kept and axis == array.ndim - 1 else f"e{number}_{k}_{axis}" for axis, n in enumerate(array.shape)
            ] if dynamic else array.shape
            inputs.append(helper.make_tensor_value_info(
                names[-1], helper.np_dtype_to_tensor_dtype(array.dtype), shape
            ))
        nodes.append(helper.make_node(operator, names, [f"y{number}"], f"node {case[0]}", **attributes))
        outputs.append(helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, None))
        found.append(case)
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString(), found


def check_onnx(dtype: type, dynamic: bool) -> None:
    source, cases = onnx_model(dtype, dynamic)
    with motet.load(motet.compile(source)) as session:
        function = session.main
        right = [case[2][0] for case in cases]
        wanted = [case[1](*arrays) for case, arrays in zip(cases, right, strict=True)]
        for turn in range(4):  # the third call is a native one
            check_right(function, right, wanted)
            for number, (name, _, _, wrong) in enumerate(cases):
                for arrays in wrong if turn in (0, 3) else wrong[:1]:
                    given = [array for n, own in enumerate(right) for array in (arrays if n == number else own)]
                    check_wrong(function, given, f'"node {name}": index', f"{name} {dtype} {dynamic} {arrays[1:2]}")
                    if turn == 3 and arrays is wrong[0]:
                        check_submitted(function, given, name)


def check_right(function: Any, right: list[Arrays], wanted: list[np.ndarray]) -> None:
    made = function(*(array for arrays in right for array in arrays))
    for number, (found, expected) in enumerate(zip(made, wanted, strict=True)):
        if not np.array_equal(found, expected):
            print(f"result {number} is wrong")


def check_wrong(function: Any, given: list[np.ndarray], text: str, what: str) -> None:
    try:
        function(*given)
        print(f"{what}: no error")
    except CallError as error:
        if text not in str(error):
            print(f"{what}: {error}; expected {text}")


def check_submitted(function: Any, given: list[np.ndarray], what: str) -> None:
    if not isinstance(function.submit(*given).exception(), CallError):
        print(f"{what}, submitted: no error")


# -- MLIR ----------------------------------------------------------------------------------------------

MLIR = """
func.func @element(%t: tensor<5x?xf32>, %i: tensor<2xi64>) -> tensor<1xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tensor.extract %i[%c0] : tensor<2xi64>
  %b = tensor.extract %i[%c1] : tensor<2xi64>
  %x = arith.index_cast %a : i64 to index
  %y = arith.index_cast %b : i64 to index
  %v = tensor.extract %t[%x, %y] : tensor<5x?xf32>
  %r = tensor.from_elements %v : tensor<1xf32>
  return %r : tensor<1xf32>
}
func.func @sums(%t: tensor<?xf32>, %i: tensor<?xi32>, %u: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %i, %c0 : tensor<?xi32>
  %r = scf.for %k = %c0 to %n step %c1 iter_args(%s = %t) -> tensor<?xf32> {
    %a = tensor.extract %i[%k] : tensor<?xi32>
    %x = arith.index_cast %a : i32 to index
    %o = tensor.extract %s[%x] : tensor<?xf32>
    %d = tensor.extract %u[%k] : tensor<?xf32>
    %e = arith.addf %o, %d : f32
    %v = tensor.insert %e into %s[%x] : tensor<?xf32>
    scf.yield %v : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}
func.func @slice(%t: tensor<?xf32>, %i: tensor<2xi64>) -> tensor<3xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tensor.extract %i[%c0] : tensor<2xi64>
  %x = arith.index_cast %a : i64 to index
  %b = tensor.extract %i[%c1] : tensor<2xi64>
  %y = arith.index_cast %b : i64 to index
  %v = tensor.extract_slice %t[%x] [3] [%y] : tensor<?xf32> to tensor<3xf32>
  return %v : tensor<3xf32>
}
func.func @place(%t: tensor<9x4xf32>, %u: tensor<3x4xf32>, %i: tensor<1xi64>) -> tensor<9x4xf32> {
  %c0 = arith.constant 0 : index
  %a = tensor.extract %i[%c0] : tensor<1xi64>
  %x = arith.index_cast %a : i64 to index
  %v = tensor.insert_slice %u into %t[%x, 0] [3, 4] [1, 1] : tensor<3x4xf32> into tensor<9x4xf32>
  return %v : tensor<9x4xf32>
}
func.func @store(%t: memref<3xf32>, %i: memref<3xi64>, %o: memref<5xf32>) {
  affine.for %k = 0 to 3 {
    %a = memref.load %i[%k] : memref<3xi64>
    %x = arith.index_cast %a : i64 to index
    %v = memref.load %t[%k] : memref<3xf32>
    memref.store %v, %o[%x] : memref<5xf32>
  }
  return
}
"""
DIVISIONS = ("divsi", "remsi", "floordivsi", "ceildivsi", "divui", "remui", "ceildivui")
DIVIDE = """
func.func @OP(%t: tensor<4xi32>, %u: tensor<4xi32>) -> tensor<1xi32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %z = arith.constant 0 : i32
  %r = scf.for %k = %c0 to %c4 step %c1 iter_args(%s = %z) -> i32 {
    %a = tensor.extract %t[%k] : tensor<4xi32>
    %b = tensor.extract %u[%k] : tensor<4xi32>
    %d = arith.OP %a, %b : i32
    %x = arith.xori %s, %d : i32
    scf.yield %x : i32
  }
  %w = tensor.from_elements %r : tensor<1xi32>
  return %w : tensor<1xi32>
}
"""


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def mlir_cases() -> Iterator[Cases]:
    least, most = -(2**63), 2**63 - 1
    t = np.arange(15, dtype=np.float32).reshape(5, 3)
    pairs = ([5, 0], [0, 3], [-1, 0], [0, least], [most, most])
    yield "element", lambda t, i: t[tuple(i)].reshape(1), [(t, np.array([1, 2]))], [
        *((t, np.array(pair)) for pair in pairs), (ones(5, 0), np.array([0, 0])),
    ]
    small = np.int32

    def sums(t: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
        t = t.copy()
        np.add.at(t, i, u)
        return t

    yield "sums", sums, [
        (ones(5), np.array([1, 2, 1], small), ones(3)), (ones(5), np.array([], small), ones(0)),
        (ones(0), np.array([], small), ones(0)),
    ], [
        *((ones(5), np.array(v, small), ones(3)) for v in ([5, 0, 0], [0, -1, 3], [0, 0, -(2**31)])),
        (ones(5), np.array([1, 2, 1], small), ones(2)), (ones(0), np.array([0, 0], small), ones(2)),
    ]
    line = np.arange(9, dtype=np.float32)
    yield "slice", lambda t, i: t[i[0] + i[1] * np.arange(3)], [
        (line, np.array([2, 3])), (line, np.array([8, -4])), (line, np.array([4, 0])),
    ], [
        *((line, np.array(v)) for v in ([3, 3], [-1, 1], [7, -4], [0, 2**62], [0, least], [0, most], [most, 1])),
        (line[:2], np.array([0, 1])),
    ]
    yield "place", lambda t, u, i: put(t, slice(i[0], i[0] + 3), u), [
        (ones(9, 4), 2 * ones(3, 4), np.array([n])) for n in (0, 6)
    ], [(ones(9, 4), ones(3, 4), np.array([n])) for n in (7, -1, least, most)]
    yield "store", lambda t, i, o: put(o, i, t), [(line[:3], np.array([1, 2, 4]), ones(5))], [
        (line[:3], np.array(v), ones(5)) for v in ([5, 0, 0], [0, -1, 3], [0, 0, least])
    ]


def check_mlir() -> None:
    source = MLIR + "".join(DIVIDE.replace("OP", name) for name in DIVISIONS)
    with motet.load(motet.compile(source)) as session:
        for name, wanted, right, wrong in mlir_cases():
            function = getattr(session, name)
            for _ in range(4):
                for arrays in right:
                    expected = wanted(*arrays)
                    given = [array.copy() for array in arrays]
                    found = function(*given)
                    found = given[-1] if found is None else found
                    if not np.array_equal(found, expected):
                        print(f"{name}: {found}; expected {expected}")
                for arrays in wrong:
                    check_wrong(function, [array.copy() for array in arrays], "", f"{name} {arrays[1:]}")
        check_divisions(session)


def check_divisions(session: Any) -> None:
    """None ends the process; what they give of zero and of the least number is the machine's affair."""
    x, y = (np.array(v, np.int32) for v in ([7, -7, 9, -(2**31)], [2, 3, -4, 5]))
    for name in DIVISIONS:
        function = getattr(session, name)
        for divisors in (y, np.array([0, 0, -1, -1], np.int32)):
            function(x, divisors)
        whole = [int(n) for n in x] if name.endswith("si") else [int(n) & 0xFFFFFFFF for n in x]
        by = [int(n) for n in y] if name.endswith("si") else [int(n) & 0xFFFFFFFF for n in y]
        exact = [division(name, a, b) & 0xFFFFFFFF for a, b in zip(whole, by, strict=True)]
        expected = exact[0] ^ exact[1] ^ exact[2] ^ exact[3]
        if int(function(x, y)[0]) & 0xFFFFFFFF != expected:
            print(f"{name}: {function(x, y)}; expected {expected}")


def division(name: str, a: int, b: int) -> int:
    towards_zero = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if name.startswith("rem"):
        return a - towards_zero * b
    return {"div": towards_zero, "flo": a // b, "cei": -(-a // b)}[name[:3]]


# -- elsewhere -----------------------------------------------------------------------------------------


def check_elsewhere() -> None:
    """On another device, in several devices' memory, in the modes that measure, and where the caller promises."""
    source, cases = onnx_model(np.int64, dynamic=False)
    right = [array for case in cases for array in case[2][0]]
    wanted = [case[1](*case[2][0]) for case in cases]
    wrong = [*cases[0][3][0], *right[2:]]
    text = '"node rows": index 5 is outside of an axis of extent 5'
    with motet.load(motet.compile(source, devices="null")) as session:
        for _ in range(3):
            check_right(session.main, [tuple(right)], wanted)
            check_wrong(session.main, wrong, text, "null")
    with motet.load(motet.compile(source)) as session:
        check_wrong(session.main.profile, wrong, text, "profile")
        check_wrong(session.main.trace, wrong, text, "trace")
        check_right(session.main, [tuple(right)], wanted)
    artifact = motet.compile(source, options={"unchecked-indices": True})
    if any(schedule.checks for variant in artifact.manifest.variants for schedule in variant.schedules.values()):
        print("unchecked-indices: there are checks")
    with motet.load(artifact) as session:
        check_right(session.main, [tuple(right)], wanted)


def check_either(dynamic: type, static: type) -> None:
    """Indices of one type where extents are those of a call, of another where the model has them."""
    check_onnx(dynamic, True)
    check_onnx(static, False)


KINDS: dict[str, Callable[[], None]] = {
    "onnx": lambda: check_either(np.int64, np.int32),
    "onnx, the other way around": lambda: check_either(np.int32, np.int64),
    "mlir": check_mlir,
    "elsewhere": check_elsewhere,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]]()
    print("done")
