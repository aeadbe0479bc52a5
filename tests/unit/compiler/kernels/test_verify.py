"""Every rule of `verify` finds a kernel that breaks it, and no rule a kernel that keeps to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, softmax, stage, value

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.kernels.split_reductions import split_reductions
from motet.compiler.kernels.verify import RULES, checked, verify
from motet.errors import CompileError


def matmul() -> Kernel:
    """4x8 = 4x6 times 6x8."""
    return kernel(
        [value((4, 6)), value((6, 8)), value((4, 8), role="result")],
        stage(
            (4, 8, 6), "ppr", [at(0, 3, 0, 2), at(1, 3, 2, 1)], [at(2, 3, 0, 1)],
            [op("mulf", 0, 1), op("addf", 2, 3)], inits=(0.0,),
        ),
    )


def with_stage(**changes: Any) -> Kernel:
    made = matmul()
    return replace(made, stages=(replace(made.stages[0], **changes),))


def with_value(number: int, **changes: Any) -> Kernel:
    made = matmul()
    values = [replace(each, **changes) if i == number else each for i, each in enumerate(made.values)]
    return replace(made, values=tuple(values))


def first(**changes: Any) -> Kernel:
    """The product with another access for its first input."""
    access = replace(matmul().stages[0].inputs[0], **changes)
    return with_stage(inputs=(access, matmul().stages[0].inputs[1]))


def reads_ahead() -> Kernel:
    """Stages in the wrong order."""
    made = softmax(4, 16)
    return replace(made, stages=made.stages[::-1])


def shifted(by: int) -> tuple[Affine, ...]:
    return (Affine.dim(0).plus(by), Affine.dim(2))


BODY = matmul().stages[0].body
BROKEN: list[tuple[str, Callable[[], Kernel]]] = [
    ("roles", lambda: with_value(0, role="temporary")),
    ("orders", lambda: with_value(1, order=(0, 0))),
    ("orders", lambda: with_value(1, order=(0,))),
    ("dtypes", lambda: with_value(0, dtype="f4")),
    ("dtypes", lambda: with_stage(body=(BODY[0], replace(BODY[1], dtype="i7")))),
    ("symbols", lambda: with_value(0, shape=(4, "a0_1"))),
    ("symbols", lambda: with_stage(sizes=(4, 8, "a0_1"))),
    ("symbols", lambda: with_value(0, shape=(4, -1))),
    ("symbols", lambda: replace(matmul(), symbols=("a0_0", "a0_0"))),
    ("arguments", lambda: replace(matmul(), arguments=(0,))),
    ("arguments", lambda: replace(matmul(), arguments=(1, 1))),
    ("loops", lambda: with_stage(iterators=("parallel", "parallel"))),
    ("loops", lambda: with_stage(iterators=("parallel", "parallel", "window"))),
    ("outputs", lambda: with_stage(inits=())),
    ("outputs", lambda: with_stage(outputs=(), inits=(), yields=())),
    ("maps", lambda: first(value=3)),
    ("maps", lambda: first(map=(Affine.dim(0),))),
    ("maps", lambda: first(map=(Affine.dim(0), Affine.dim(3)))),
    ("maps", lambda: first(map=(Affine.dim(0), Affine(((2, 1), (0, 1)))))),
    ("maps", lambda: first(map=(Affine.dim(0), Affine(((2, 1), (1, 0)))))),
    ("bounds", lambda: first(map=shifted(1))),
    ("bounds", lambda: first(map=shifted(-1))),
    ("bounds", lambda: with_stage(inits=(at(2, 3, 0, (1, {1: 1})),))),
    ("writes", lambda: with_stage(outputs=(at(0, 3, 0, (0, {})),))),
    ("writes", lambda: with_stage(outputs=(at(2, 3, 0, 1, padding=0),))),
    ("writes", lambda: with_stage(outputs=(at(2, 3, 0, 2),))),
    ("stages", reads_ahead),
    ("stages", lambda: replace(matmul(), stages=())),
    ("stages", lambda: with_stage(inits=(at(2, 3, 0, 1),))),
    ("operands", lambda: with_stage(body=(op("mulf", 0, 4), BODY[1]))),
    ("operands", lambda: with_stage(yields=(5,))),
    ("attributes", lambda: with_stage(body=(op("constant"), BODY[1]))),
    ("attributes", lambda: with_stage(body=(BODY[0], op("linalg.index", dtype="index", value=3), BODY[1]))),
    ("attributes", lambda: with_stage(body=(BODY[0], op("cmpf", 0, 1, dtype="i1"), BODY[1]), yields=(3,))),
    ("attributes", lambda: with_stage(body=(replace(BODY[0], check=1), BODY[1]))),
    ("running", lambda: with_stage(inits=(None,))),
    ("types", lambda: with_value(2, dtype="f16")),
]


@pytest.mark.parametrize(("name", "broken"), BROKEN)
def test_a_broken_rule_is_named(name: str, broken: Callable[[], Kernel]) -> None:
    with pytest.raises(CompileError, match=f"kernel kernel after a test: .*: rule {name}: "):
        verify(broken(), "a test")


def test_every_rule_is_broken_by_some_kernel() -> None:
    assert {name for name, _ in BROKEN} == {rule.name for rule in RULES}


@pytest.mark.parametrize(
    "made",
    [
        matmul(),
        softmax(4, 16),
        softmax("a0_0", "a0_1"),
        first(map=shifted(1), padding=0),  # a padded read may be outside
        with_stage(sizes=(0, 8, 6), inputs=(replace(matmul().stages[0].inputs[0], map=shifted(9)), at(1, 3, 2, 1))),
        split_reductions(
            kernel(
                [value((1 << 17,)), value((), role="result")],
                stage((1 << 17,), "r", [at(0, 1, 0)], [at(1, 1)], [op("addf", 0, 1)], inits=(0.0,)),
            )
        ),
    ],
)
def test_what_is_well_formed_passes(made: Kernel) -> None:
    assert verify(made) is made


def test_kernels_are_checked_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = with_stage(inits=(None,))
    monkeypatch.setenv("MOTET_CHECK", "0")
    assert checked(broken, "a test") is broken
    monkeypatch.setenv("MOTET_CHECK", "1")
    with pytest.raises(CompileError, match="rule running"):
        checked(broken, "a test")


def test_a_stage_is_the_smallest_thing_that_breaks() -> None:
    made = softmax(4, 16)
    broken: Stage = replace(made.stages[2], yields=(99,))
    with pytest.raises(CompileError, match="stage 2 yields"):
        verify(replace(made, stages=(*made.stages[:2], broken, *made.stages[3:])))
