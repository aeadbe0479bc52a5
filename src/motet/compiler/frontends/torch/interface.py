"""The signature of an imported PyTorch program, which its text does not contain; free of MLIR and of torch."""

from __future__ import annotations

import msgspec


class Interface(msgspec.Struct, frozen=True):
    """Names of the `inputs` and of their `dims` ("" for static extents; equal names mean equal extents), keys of the
    `parameters` that follow them as arguments, and names of the `results`."""

    inputs: list[str]
    dims: list[list[str]]
    parameters: list[str]
    results: list[str]
