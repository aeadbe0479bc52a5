"""Programs of torch.export refuse calls that it refuses: guards of tracing, ranges and relations of dimensions."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import motet
from motet.errors import CallError

torch = pytest.importorskip("torch")
Dim = torch.export.Dim
AUTO = Dim.AUTO


def _checked(x: Any) -> Any:
    torch._check(x.shape[0] % 4 == 0)
    return x.reshape(4, -1, x.shape[1]).sum(0)


# Functions of one tensor with two dynamic axes.
BRANCHES: dict[str, Callable[[Any], Any]] = {
    "greater": lambda x: x * 2 if x.shape[0] > 5 else x * 3,
    "even": lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3,
    "different": lambda x: x * 2 if x.shape[0] != 3 else x * 3,
    "one of two": lambda x: x * 2 if x.shape[0] == 5 or x.shape[1] > 4 else x * 3,
    "not both": lambda x: x * 2 if not (x.shape[0] > 4 and x.shape[1] > 4) else x * 3,
    "compared": lambda x: x * 2 if x.shape[0] * 2 > x.shape[1] + 3 else x * 3,
    "product": lambda x: x * 2 if x.numel() > 20 else x * 3,
    "quotient": lambda x: x * 2 if x.shape[0] // 3 > 1 else x * 3,
    "larger": lambda x: x * 2 if max(x.shape[0], x.shape[1]) > 6 else x * 3,
    "between": lambda x: x * 2 if 3 < x.shape[1] < 7 else x * 3,
    "checked": _checked,
    "wide": lambda x: x * 2 if x.shape[0] ** 2 > 30 else x * 3,
    "rounded": lambda x: x * 2 if round(x.shape[0] / 3) == 2 else x * 3,
    "negated": lambda x: x * 2 if -x.shape[0] > -6 else x * 3,
    "by a factor": lambda x: x * 2 if int(x.shape[0] * 0.7) == 4 else x * 3,
}


class Applied(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: Any) -> Any:
        return self._function(*tensors)


class Named(torch.nn.Module):
    def forward(self, first: Any, rest: Any, *, bias: Any) -> Any:
        y = first + rest["a"][0] + bias
        return y * 2 if bias.shape[0] > 5 and rest["a"][0].shape[1] > 3 else y * 3


def saved(program: Any) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def refuses(call: Callable[[], Any]) -> bool:
    try:
        call()
    except AssertionError:  # a guard of PyTorch
        return True
    except RuntimeError as error:
        assert "ard failed" in str(error) or "expected" in str(error).lower(), error
        return True
    return False


def agree_in_all_calls(program: Any, calls: list[tuple[Any, ...]], *sessions: Any) -> tuple[int, int]:
    """How many calls are right, and how many are refused; PyTorch's own program decides which."""
    module = program.module()
    right = refused = 0
    for tensors in calls:
        if refuses(lambda tensors=tensors: module(*tensors)):
            for session in sessions:
                with pytest.raises(CallError, match=r"was exported for inputs with|is \d+|expected"):
                    session(*tensors)
            refused += 1
        else:
            wanted = module(*tensors)
            for session in sessions:
                torch.testing.assert_close(torch.as_tensor(session(*tensors)), wanted)
            right += 1
    return right, refused


ROWS = (2, 3, 4, 5, 6, 7, 8, 9)


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("example", [pytest.param((4, 3), marks=pytest.mark.slow), (8, 6)])
def test_the_other_side_of_a_branch_is_refused(name: str, example: tuple[int, int]) -> None:
    program = torch.export.export(
        Applied(BRANCHES[name]), (torch.ones(example),), dynamic_shapes=(({0: AUTO, 1: AUTO},),)
    )
    calls = [(torch.rand(rows, columns),) for rows, columns in itertools.product(ROWS, (2, 3, 4, 5, 6, 7))]
    sessions = [motet.load(motet.compile(source)) for source in (program, saved(program))]
    right, refused = agree_in_all_calls(program, calls, *sessions)
    assert right and refused, (right, refused)


def test_a_guard_is_told_with_the_extent() -> None:
    module = Applied(BRANCHES["greater"])
    session = motet.load(motet.compile(module, inputs=[torch.ones(8, 4)], dynamic_shapes=(({0: AUTO},),)))
    told = r"was exported for inputs with .*\.shape\[0\] >= 6: 6 and 2; axis 0 of \S+ is 2"
    with pytest.raises(CallError, match=told):
        session(torch.ones(2, 4))


def test_ranges_of_dimensions() -> None:
    rows = Dim("rows", min=4, max=7)
    program = torch.export.export(Applied(lambda x: x * 2), (torch.ones(5, 3),), dynamic_shapes=(({0: rows},),))
    calls = [(torch.rand(count, 3),) for count in range(2, 10)]
    assert agree_in_all_calls(program, calls, motet.load(motet.compile(program))) == (4, 4)


def test_relations_of_dimensions() -> None:
    rows = Dim("rows", min=2, max=9)
    shapes = (({0: rows}, {0: 2 * rows + 1}),)
    program = torch.export.export(
        Applied(lambda x, y: x.sum() + y), (torch.ones(4, 3), torch.ones(9, 2)), dynamic_shapes=shapes
    )
    calls = [(torch.rand(a, 3), torch.rand(b, 2)) for a in range(2, 6) for b in range(3, 13)]
    right, refused = agree_in_all_calls(program, calls, motet.load(motet.compile(program)))
    assert (right, refused) == (4, 36)


def test_a_dimension_that_is_a_multiple() -> None:
    rows = Dim("rows", min=1, max=8)
    program = torch.export.export(
        Applied(lambda x: x.reshape(-1, 4).sum(1)), (torch.ones(12),), dynamic_shapes=(({0: 4 * rows},),)
    )
    calls = [(torch.rand(count),) for count in (*range(4, 20), 32, 36)]
    right, refused = agree_in_all_calls(program, calls, motet.load(motet.compile(program)))
    assert (right, refused) == (4, len(calls) - 4)  # 8, 12, 16 and 32 elements


def test_guards_of_nested_inputs() -> None:
    def inputs(rows: int, columns: int) -> tuple[Any, Any, Any]:
        return torch.rand(rows, columns), torch.rand(rows, columns), torch.rand(rows, 1)

    first, second, bias = inputs(8, 6)
    program = torch.export.export(
        Named(), (first, {"a": [second]}), {"bias": bias},
        dynamic_shapes={"first": {0: AUTO, 1: AUTO}, "rest": {"a": [{0: AUTO, 1: AUTO}]}, "bias": {0: AUTO}},
    )
    session = motet.load(motet.compile(program))
    for rows, columns in itertools.product((3, 6, 9), (2, 4, 5)):
        first, second, bias = inputs(rows, columns)
        if rows > 5 and columns > 3:
            found = torch.as_tensor(session(first, second, bias))
            torch.testing.assert_close(found, (first + second + bias) * 2)
        else:
            with pytest.raises(CallError, match="was exported for inputs with"):
                session(first, second, bias)


def test_specialised_extents_are_static() -> None:
    def specialised(x: Any) -> Any:
        return x * (2 if x.shape[0] == 5 else 3)

    program = torch.export.export(Applied(specialised), (torch.ones(5, 3),), dynamic_shapes=(({0: AUTO, 1: AUTO},),))
    session = motet.load(motet.compile(program))
    torch.testing.assert_close(torch.as_tensor(session(torch.ones(5, 4))), torch.full((5, 4), 2.0))
    with pytest.raises(CallError):
        session(torch.ones(4, 4))
