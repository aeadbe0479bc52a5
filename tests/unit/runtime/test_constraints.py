"""What a call's extents must fulfil."""

from __future__ import annotations

import pytest

from motet.artifact.schema import Constraint, Signature, Symbol, TensorSpec
from motet.errors import CallError
from motet.runtime.instantiate import check_constraints

# By relation: pairs of numbers that fulfil it, and pairs that do not.
RELATIONS = {
    "equal": ([(3, 3), (0, 0)], [(3, 4), (1, 3), (0, 1)]),
    "at-most": ([(3, 3), (0, 3), (0, 0)], [(4, 3), (1, 0)]),
    "multiple": ([(6, 3), (0, 3), (0, 0)], [(7, 3), (3, 6), (3, 0)]),
    "stretch": ([(3, 3), (1, 3), (1, 0)], [(3, 1), (0, 1), (2, 3)]),
    "broadcast": ([(3, 3), (1, 3), (3, 1), (0, 1)], [(2, 3), (0, 2)]),
}


def signature(relation: str) -> Signature:
    inputs = [TensorSpec("x", ["n"], "f32"), TensorSpec("y", [2, "m"], "f32")]
    constraint = Constraint("n", "m", relation, 'Concat "join": axis 0 and axis 1 must fit')  # type: ignore[arg-type]
    return Signature("main", inputs, [], [Symbol("n", 0, 0), Symbol("m", 1, 1)], [constraint])


def test_a_condition_is_refused_with_the_extents_alone() -> None:
    check_constraints(signature("true"), {"n": 1, "m": 0}, "main")
    with pytest.raises(CallError, match=r"must fit: axis 0 of x is 0, axis 1 of y is 7$"):
        check_constraints(signature("true"), {"n": 0, "m": 7}, "main")


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_relation_holds_or_is_refused_with_both_numbers(relation: str) -> None:
    right, wrong = RELATIONS[relation]
    for n, m in right:
        check_constraints(signature(relation), {"n": n, "m": m}, "main")
    for n, m in wrong:
        with pytest.raises(CallError) as refused:
            check_constraints(signature(relation), {"n": n, "m": m}, "main")
        assert str(refused.value) == (
            f'main: Concat "join": axis 0 and axis 1 must fit: {n} and {m}; axis 0 of x is {n}, axis 1 of y is {m}'
        )
