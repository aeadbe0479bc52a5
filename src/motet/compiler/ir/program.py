"""A program in normal form: what every frontend returns and every later stage takes.

The module holds public `func.func`s on ranked tensors, with `linalg`, `tensor`, `arith`, `math` (and `scf`,
`func.call`) inside. Conventions, all as discardable attributes so that upstream tools read the module too:

- argument attribute `motet.parameter = "key"`: the argument is a constant tensor, its data in
  `Program.parameters["key"]`; parameter arguments follow all inputs. Only large floating or quantised
  data becomes a parameter; small and integer constants stay `arith.constant`.
- argument / result attribute `motet.name = "x"`: the name the user knows it by.
- argument attribute `motet.dims = ["batch", ""]`: names of dynamic extents; equal names are equal extents.
- result attribute `motet.destination = 2 : i64`: the result is written in place into that argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from motet.compiler.ir._mlir import ir

PARAMETER = "motet.parameter"
NAME = "motet.name"
DIMS = "motet.dims"
DESTINATION = "motet.destination"


@dataclass
class Program:
    """`module` in normal form; `parameters` maps keys to arrays (memory-mapped where the source allows)."""

    module: ir.Module
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
