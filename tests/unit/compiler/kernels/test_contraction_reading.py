"""What sums of products are read as, from linalg text: the roles of dimensions, and the loops that they become."""

from __future__ import annotations

from math import prod

import pytest
from tests.unit.compiler.kernels.linalg_texts import MAXIMUM, kernel_of, letters, stage_of

from motet.compiler.kernels.contraction import match, read_contraction

SIZES = {"a": 2, "b": 3, "c": 5, "m": 7, "p": 11, "n": 13, "q": 17, "k": 19, "l": 23}
ROLES = ("batch", "m", "n", "k", "broadcast", "summed")
CASES = [
    ("m,k ; k,n -> m,n", {"m": "m", "n": "n", "k": "k"}),
    ("k,m ; n,k -> m,n", {"m": "m", "n": "n", "k": "k"}),
    ("m,k ; k,n -> n,m", {"m": "m", "n": "n", "k": "k"}),
    ("a,m,k ; a,k,n -> a,m,n", {"batch": "a", "m": "m", "n": "n", "k": "k"}),
    ("a,b,m,k ; a,b,k,n -> a,b,m,n", {"batch": "ab", "m": "m", "n": "n", "k": "k"}),
    ("a,b,c,m,k ; c,a,k,b,n -> a,m,b,n,c", {"batch": "abc", "m": "m", "n": "n", "k": "k"}),
    ("a,b,m,k ; k,n -> a,b,m,n", {"m": "abm", "n": "n", "k": "k"}),  # leading dimensions are M
    ("a,b,c,m,k ; n,k -> a,b,c,m,n", {"m": "abcm", "n": "n", "k": "k"}),
    ("m,k ; a,k,n -> a,m,n", {"m": "m", "n": "an", "k": "k"}),
    ("a,m,k ; b,k,n -> m,a,n,b", {"m": "am", "n": "bn", "k": "k"}),
    ("m,l,p,k ; k,q,n,l -> m,p,q,n", {"m": "mp", "n": "nq", "k": "kl"}),
    ("k ; k,n -> n", {"n": "n", "k": "k"}),
    ("m,k ; k -> m", {"m": "m", "k": "k"}),
    ("a,k ; a,k -> a", {"batch": "a", "k": "k"}),
    ("a,m,k,l ; k,n -> a,m,n", {"m": "am", "n": "n", "k": "k", "summed": "l"}),
    ("m,k ; k,n -> a,m,n", {"m": "m", "n": "n", "k": "k", "broadcast": "a"}),
]


@pytest.mark.parametrize(("expressions", "expected"), CASES, ids=[case for case, _ in CASES])
def test_dimensions_have_roles_by_where_they_appear(expressions: str, expected: dict[str, str]) -> None:
    stage = stage_of(expressions, SIZES)
    dims = read_contraction(stage)
    assert dims is not None
    found = {role: letters(stage, getattr(dims, role), SIZES) for role in ROLES}
    assert found == {role: expected.get(role, "") for role in ROLES}
    swapped = dims.swapped
    assert (swapped.m, swapped.n, swapped.product.lhs) == (dims.n, dims.m, dims.product.rhs)


def test_dimensions_of_one_element_have_no_role() -> None:
    sizes = {"a": 1, "m": 7, "n": 1, "k": 19}
    dims = read_contraction(stage_of("a,m,k ; a,k,n -> a,m,n", sizes))
    assert dims is not None and (dims.batch, dims.n) == ((), ())


@pytest.mark.parametrize(("expressions", "body"), [
    ("m,k ; k,n -> m,n", ("arith.addf %a0, %a1", "arith.addf %r, %t")),
    ("m,k ; k,n -> m,n", ("arith.mulf %a0, %a1", "arith.maximumf %r, %t")),
    ("m,k -> m", MAXIMUM),
    ("m,n ; n,m -> m,n", ("arith.mulf %a0, %a1", "arith.addf %r, %t")),  # sums nothing
])
def test_other_stages_are_no_contractions(expressions: str, body: tuple[str, str]) -> None:
    assert read_contraction(stage_of(expressions, SIZES, body=body)) is None


@pytest.mark.parametrize(("expressions", "rows", "columns", "outer"), [
    ("a,b,m,k ; k,n -> a,b,m,n", "abm", "n", ""),
    ("a,b,c,m,k ; n,k -> a,b,c,m,n", "abcm", "n", ""),
    ("a,m,b,k ; k,n -> a,b,m,n", "m", "n", "ab"),  # memory walks no two of M as one
    ("a,b,m,k ; a,b,k,n -> a,b,m,n", "m", "n", "ab"),
    ("m,a,k ; k,n,q -> m,a,n,q", "am", "nq", ""),
    ("m,k ; k,n -> n,m", "n", "m", ""),  # N is what is contiguous in the result
])
def test_dimensions_of_a_role_are_one_loop_where_memory_allows_it(
    expressions: str, rows: str, columns: str, outer: str
) -> None:
    found = match(kernel_of(expressions, SIZES))
    assert found is not None and found.m is not None
    assert found.m[0].known == prod(SIZES[name] for name in rows)
    assert found.n[0].known == prod(SIZES[name] for name in columns)
    assert prod(size.factor for size, _ in found.outer) == prod(SIZES[name] for name in outer)
