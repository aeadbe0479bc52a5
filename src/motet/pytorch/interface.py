"""The signature of an imported PyTorch program, which its text does not contain; free of MLIR and of torch."""

from __future__ import annotations

import msgspec


class Guard(msgspec.Struct, frozen=True):
    """A condition of every call: Python text over `extent_I_A`, the extent of input I along axis A; `text` is what
    users read."""

    condition: str
    text: str


class Interface(msgspec.Struct, frozen=True):
    """Names of the `inputs` and of their `dims` ("" for static extents; equal names mean equal extents), keys of the
    `parameters` that follow them as arguments, names of the `results`, and conditions of calls."""

    inputs: list[str]
    dims: list[list[str]]
    parameters: list[str]
    results: list[str]
    guards: list[Guard] = []
