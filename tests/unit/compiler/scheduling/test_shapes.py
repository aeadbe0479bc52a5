"""Extents as expressions: those that grow with each operation are bounded."""

from __future__ import annotations

import pytest

import motet
from motet.errors import CompileError

_REPEATED = 30


def test_extents_of_many_operations_are_refused_in_one_line() -> None:
    """Each size is used twice by the next, so that the expression doubles with each."""
    sizes = "\n".join(
        f"""  %m{n} = arith.maxsi %s{n}, %b : index
  %p{n} = arith.muli %s{n}, %m{n} : index
  %s{n + 1} = arith.ceildivsi %p{n}, %c3 : index"""
        for n in range(_REPEATED)
    )
    source = f"""func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {{
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %one = arith.constant 1.0 : f32
  %s0 = tensor.dim %x, %c0 : tensor<?xf32>
  %b = tensor.dim %y, %c0 : tensor<?xf32>
{sizes}
  %e = tensor.empty(%s{_REPEATED}) : tensor<?xf32>
  %r = linalg.fill ins(%one : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}}"""
    with pytest.raises(CompileError, match="more than 2000 operations and extents of inputs; expected fewer"):
        motet.compile(source)
