"""Operations whose extents only a call knows: right ones against numpy, wrong ones refused, on one device and more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.integration.placed import build_placed

import motet
from motet.errors import CallError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """`text` is the body of a function, whose arguments `kinds` are. `right` are shapes that fit, `wrong` some that do
    not, with what the error says: the operation, and the numbers."""

    kinds: Sequence[str]
    result: str
    text: str
    expected: Callable[..., np.ndarray]
    right: Sequence[Sequence[Shape]]
    wrong: Sequence[tuple[Sequence[Shape], str]]


MATRIX, VECTOR, IMAGE = "tensor<?x?xf32>", "tensor<?xf32>", "tensor<?x?x?x?xf32>"
SIZES = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
"""


def windows(image: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))


CASES = {
    "product": Case(
        [MATRIX, MATRIX], MATRIX, """
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
""", lambda a, b: a @ b, [[(3, 5), (5, 7)], [(1, 1), (1, 1)], [(17, 0), (0, 3)], [(33, 31), (31, 65)]],
        [([(3, 5), (4, 7)], "matmul.*: 5 and 4"), ([(3, 1), (4, 7)], "matmul.*: 1 and 4")],
    ),
    "sum": Case(
        [MATRIX, VECTOR], MATRIX, """
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %a, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%a, %b : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %s = arith.addf %x, %y : f32
      linalg.yield %s : f32
  } -> tensor<?x?xf32>
""", lambda a, b: a + b, [[(3, 5), (5,)], [(0, 5), (5,)], [(3, 0), (0,)]],
        [([(3, 5), (1,)], "generic.*: 5 and 1"), ([(3, 5), (7,)], "axis 1 of operand 0 and axis 0 of .*: 5 and 7")],
    ),
    "join": Case(
        [MATRIX, MATRIX], MATRIX, """
  %r = tensor.concat dim(1) %a, %b : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
""", lambda a, b: np.concatenate([a, b], 1), [[(3, 5), (3, 7)], [(3, 0), (3, 1)], [(0, 2), (0, 3)]],
        [([(3, 5), (4, 5)], "concat: axis 0 of inputs 0 and 1 must be equal: 3 and 4"),
         ([(3, 5), (1, 5)], ": 3 and 1")],
    ),
    "middle": Case(
        [MATRIX], "tensor<3x?xf32>", """
  %n = tensor.dim %a, %c1 : tensor<?x?xf32>
  %r = tensor.extract_slice %a[2, 0] [3, %n] [1, 1] : tensor<?x?xf32> to tensor<3x?xf32>
""", lambda a: a[2:5], [[(5, 3)], [(7, 0)], [(64, 65)]],
        [([(4, 3)], "extract_slice.*: 5 and 4"), ([(0, 3)], ": 5 and 0")],
    ),
    "shorter": Case(
        [MATRIX], MATRIX, """
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %a, %c1 : tensor<?x?xf32>
  %k = arith.subi %m, %c3 : index
  %r = tensor.extract_slice %a[2, 0] [%k, %n] [1, 1] : tensor<?x?xf32> to tensor<?x?xf32>
""", lambda a: a[2:-1], [[(5, 3)], [(3, 3)], [(33, 1)]], [([(2, 3)], "extract_slice.*negative: 0 and -1")],
    ),
    "written": Case(
        [MATRIX, "tensor<3x2xf32>"], MATRIX, """
  %r = tensor.insert_slice %b into %a[1, 2] [3, 2] [1, 1] : tensor<3x2xf32> into tensor<?x?xf32>
""", lambda a, b: np.block([[a[:1, :2], a[:1, 2:4], a[:1, 4:]], [a[1:4, :2], b, a[1:4, 4:]],
                            [a[4:, :2], a[4:, 2:4], a[4:, 4:]]]),
        [[(4, 4), (3, 2)], [(7, 9), (3, 2)]],
        [([(3, 4), (3, 2)], "insert_slice.*: 4 and 3"), ([(4, 3), (3, 2)], ": 4 and 3")],
    ),
    "row": Case(
        [VECTOR, MATRIX, VECTOR], MATRIX, """
  %n = tensor.dim %c, %c0 : tensor<?xf32>
  %r = tensor.insert_slice %a into %b[1, 2] [1, %n] [1, 1] : tensor<?xf32> into tensor<?x?xf32>
""", lambda a, b, c: np.concatenate([b[:1], [[*b[1, :2], *a, *b[1, 2 + len(a) :]]], b[2:]]),
        [[(3,), (2, 5), (3,)], [(0,), (3, 4), (0,)], [(17,), (2, 33), (17,)]],
        [([(2,), (2, 5), (3,)], "insert_slice: axis 0 of what is inserted .*: 2 and 3"),
         ([(9999,), (2, 5), (3,)], ": 9999 and 3"), ([(4,), (2, 5), (4,)], ": 6 and 5")],
    ),
    "rows": Case(  # each one the same, if there are any
        [VECTOR, MATRIX], MATRIX, """
  %m = tensor.dim %b, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %r = scf.for %i = %c0 to %m step %c1 iter_args(%s = %b) -> tensor<?x?xf32> {
    %p = tensor.insert_slice %a into %s[%i, 0] [1, %n] [1, 1] : tensor<?xf32> into tensor<?x?xf32>
    scf.yield %p : tensor<?x?xf32>
  }
""", lambda a, b: np.tile(a, (len(b), 1)) if len(b) else b, [[(5,), (3, 5)], [(4,), (0, 5)], [(0,), (2, 0)]],
        [([(9999,), (3, 5)], "insert_slice.*: 9999 and 5"), ([(4,), (3, 5)], ": 4 and 5")],
    ),
    "split": Case(
        [VECTOR], "tensor<?x4xf32>", """
  %c4 = arith.constant 4 : index
  %n = tensor.dim %a, %c0 : tensor<?xf32>
  %k = arith.divsi %n, %c4 : index
  %r = tensor.expand_shape %a [[0, 1]] output_shape [%k, 4] : tensor<?xf32> into tensor<?x4xf32>
""", lambda a: a.reshape(-1, 4), [[(8,)], [(0,)], [(4,)]], [([(7,)], "expand_shape.*: 7 and 4"), ([(3,)], ": 3 and 4")],
    ),
    "known": Case(
        [MATRIX], "tensor<4x6xf32>", """
  %r = tensor.cast %a : tensor<?x?xf32> to tensor<4x6xf32>
""", lambda a: a, [[(4, 6)]], [([(4, 5)], "cast.*: 5 and 6"), ([(3, 6)], "cast.*: 3 and 4"), ([(6, 4)], ": 6 and 4")],
    ),
    "convolved": Case(
        [IMAGE, "tensor<?x?x3x3xf32>"], IMAGE, """
  %n = tensor.dim %a, %c0 : tensor<?x?x?x?xf32>
  %f = tensor.dim %b, %c0 : tensor<?x?x3x3xf32>
  %h = tensor.dim %a, %c2 : tensor<?x?x?x?xf32>
  %w = tensor.dim %a, %c3 : tensor<?x?x?x?xf32>
  %oh = arith.subi %h, %c2 : index
  %ow = arith.subi %w, %c2 : index
  %e = tensor.empty(%n, %f, %oh, %ow) : tensor<?x?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32>
  %r = linalg.conv_2d_nchw_fchw ins(%a, %b : tensor<?x?x?x?xf32>, tensor<?x?x3x3xf32>)
    outs(%z : tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32>
""", lambda a, b: np.einsum("nchwij,fcij->nfhw", windows(a), b),
        [[(1, 2, 5, 7), (3, 2, 3, 3)], [(2, 1, 3, 3), (1, 1, 3, 3)], [(0, 2, 5, 5), (3, 2, 3, 3)]],
        [([(1, 2, 5, 5), (3, 3, 3, 3)], "conv_2d.*: 2 and 3"), ([(1, 2, 1, 5), (3, 2, 3, 3)], "negative: 0 and -1")],
    ),
    "window": Case(  # as long as the second operand says, which may be too long
        [VECTOR, VECTOR, VECTOR], VECTOR, """
  %r = linalg.conv_1d ins(%a, %b : tensor<?xf32>, tensor<?xf32>) outs(%c : tensor<?xf32>) -> tensor<?xf32>
""", lambda a, b, c: c + np.correlate(a, b, "valid")[: len(c)],
        [[(9,), (3,), (7,)], [(9,), (3,), (5,)], [(4,), (4,), (1,)]],
        [([(9,), (3,), (8,)], "conv_1d.*: 10 and 9"), ([(2,), (3,), (1,)], ": 3 and 2")],
    ),
    "taken": Case(  # an element at a place that loops give
        [VECTOR, VECTOR], VECTOR, """
  %n = tensor.dim %b, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%b : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%x: f32, %o: f32):
      %i = linalg.index 0 : index
      %k = arith.addi %i, %c2 : index
      %t = tensor.extract %a[%k] : tensor<?xf32>
      %s = arith.addf %x, %t : f32
      linalg.yield %s : f32
  } -> tensor<?xf32>
""", lambda a, b: a[2 : 2 + len(b)] + b, [[(7,), (5,)], [(9,), (1,)], [(1,), (0,)]],
        [([(6,), (5,)], ": 7 and 6"), ([(0,), (1,)], ": 3 and 0")],
    ),
    "loop": Case(
        [MATRIX, MATRIX], VECTOR, """
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %a, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = scf.for %i = %c0 to %m step %c1 iter_args(%s = %f) -> tensor<?xf32> {
    %x = tensor.extract_slice %a[%i, 0] [1, %n] [1, 1] : tensor<?x?xf32> to tensor<?xf32>
    %y = tensor.extract_slice %b[%i, 0] [1, %n] [1, 1] : tensor<?x?xf32> to tensor<?xf32>
    %p = linalg.mul ins(%x, %y : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    %q = linalg.add ins(%s, %p : tensor<?xf32>, tensor<?xf32>) outs(%s : tensor<?xf32>) -> tensor<?xf32>
    scf.yield %q : tensor<?xf32>
  }
""", lambda a, b: (a * b[: len(a), : a.shape[1]]).sum(0), [[(3, 5), (3, 5)], [(3, 5), (4, 7)], [(0, 5), (0, 5)]],
        [([(3, 5), (2, 5)], "extract_slice.*: 3 and 2"), ([(3, 5), (3, 4)], ": 5 and 4")],
    ),
}  # fmt: skip


def module() -> str:
    functions: list[str] = []
    for name, case in CASES.items():
        arguments = ", ".join(f"%{letter}: {kind}" for letter, kind in zip("abc", case.kinds, strict=False))
        functions.append(
            f"func.func @{name}({arguments}) -> {case.result} {{{SIZES}{case.text}  return %r : {case.result}\n}}\n"
        )
    return "\n".join(functions)


def values(shapes: Sequence[Shape]) -> list[np.ndarray]:
    random = np.random.default_rng(len(shapes))
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.fixture(scope="module", params=["one device", "several"])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Of several devices, the default one has memory of its own; products and sums are made on the host."""
    text = module()
    if request.param == "one device":
        artifact = motet.compile(text)
    else:
        for name in ("linalg.matmul", "linalg.add", "linalg.conv_1d"):
            text = text.replace(f"{name} ins", f'{name} {{motet.affinity = "a"}} ins')
        artifact = build_placed(text, ("b=null[1]", "a=host"))
    with motet.load(artifact) as loaded:
        yield loaded


@pytest.mark.parametrize("name", CASES)
def test_right_extents_give_what_numpy_says(session: Any, name: str) -> None:
    case = CASES[name]
    for shapes in case.right:
        given = values(shapes)
        wanted = case.expected(*[np.asarray(value, np.float64) for value in given])
        result = session[name](*given)
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4, err_msg=str(shapes))


@pytest.mark.parametrize("name", CASES)
def test_wrong_extents_are_refused_with_the_operation_and_both_numbers(session: Any, name: str) -> None:
    for shapes, said in CASES[name].wrong:
        with pytest.raises(CallError) as refused:
            session[name](*values(shapes))
        assert re.search(rf"^{name}: .*{said}\b", str(refused.value)), refused.value


INSERTED = {
    "as data says": """
  %r = tensor.insert_slice %a into %b[1, 0] [1, %n] [1, 1] : tensor<?xf32> into tensor<2x6xf32>
""",
    "as a loop says": """
  %m = arith.addi %n, %c1 : index
  %r = scf.for %i = %n to %m step %c1 iter_args(%s = %b) -> tensor<2x6xf32> {
    %p = tensor.insert_slice %a into %s[1, 0] [1, %i] [1, 1] : tensor<?xf32> into tensor<2x6xf32>
    scf.yield %p : tensor<2x6xf32>
  }
""",
    "by threads": """
  %r = scf.forall (%i) in (1) shared_outs(%s = %b) -> tensor<2x6xf32> {
    %m = arith.addi %i, %c1 : index
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %a into %s[%m, 0] [1, %n] [1, 1] : tensor<?xf32> into tensor<2x6xf32>
    }
  }
""",
}


@pytest.mark.parametrize("body", INSERTED.values(), ids=INSERTED)
def test_what_is_inserted_is_as_long_as_its_place(body: str) -> None:
    arguments, result = "%a: tensor<?xf32>, %b: tensor<2x6xf32>, %c: tensor<1xi64>", "tensor<2x6xf32>"
    count = "  %e = tensor.extract %c[%c0] : tensor<1xi64>\n  %n = arith.index_cast %e : i64 to index\n"
    text = f"func.func @main({arguments}) -> {result} {{{SIZES}{count}{body}  return %r : {result}\n}}"
    with motet.load(motet.compile(text)) as session:
        for length in (3, 0, 6):
            row, whole = values([(length,), (2, 6)])
            wanted = whole.copy()
            wanted[1, :length] = row
            np.testing.assert_array_equal(session(row, whole, np.array([length])), wanted)
        for length, place in ((2, 3), (4, 3), (99999, 3), (7, 7), (3, -1)):
            with pytest.raises(CallError, match=r"insert_slice: (axis 0 of what is inserted is not as long|slice)"):
                session(*values([(length,), (2, 6)]), np.array([place]))
