"""Reads graphs of `motet.builder` and models that `motet.pytorch` exported: MLIR text with large constants as
separate arrays, in memory or in one file.

The file is a safetensors file whose metadata has the text under `motet.program` (`Graph.serialize`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from motet.artifact.dtypes import SAFETENSORS_DTYPES
from motet.compiler.frontends.complex_constants import split_complex_constants
from motet.compiler.frontends.mlir import parse_module
from motet.compiler.ir._mlir import ir, new_context
from motet.compiler.ir.program import Program
from motet.compiler.passes.running import run_named
from motet.compiler.protobuf import Content
from motet.errors import CompileError, Location
from motet.serialized import HEADER_LIMIT, INTERFACE, PROGRAM, header_size


def load_graph(text: str, parameters: Mapping[str, np.ndarray], file: str) -> Program:
    """The program of `text`, whose arguments marked `motet.parameter` have their data in `parameters`.

    Raises CompileError for text that does not parse.
    """
    context = new_context()
    module, data = parse_module(text, file, context)
    program = Program(module, parameters, file=file, resources=data)
    with context, ir.Location.unknown():
        split_complex_constants(module)
        run_named("read-devices", program)
    return program


def load_serialized(data: Content, file: str) -> Program:
    """The program of a file written by `Graph.serialize`; its arrays are views of `data`.

    Raises CompileError for a file that is truncated, damaged, or not a graph.
    """

    def wrong(why: str) -> CompileError:
        return CompileError(
            f"not a graph of motet.builder: {why}; expected what Graph.serialize wrote", Location(file)
        )

    size = header_size(data)
    if size > min(len(data) - 8, HEADER_LIMIT):
        raise wrong(f"its header needs {size:,} bytes, there are {len(data) - 8:,}")
    try:
        header: Any = json.loads(data[8 : 8 + size])
        metadata: dict[str, str] = header.pop("__metadata__")
        text = metadata[PROGRAM]
        arrays = {key: _array(data, 8 + size, entry) for key, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise wrong(str(error).split("\n")[0] or type(error).__name__) from None
    if INTERFACE in metadata:
        from motet.compiler.frontends.torch.loading import load_torch

        return load_torch(text, metadata[INTERFACE], arrays, file)
    return load_graph(str(text), arrays, file)


def _array(data: Content, start: int, entry: Mapping[str, Any]) -> np.ndarray:
    begin, end = entry["data_offsets"]
    dtype = SAFETENSORS_DTYPES[entry["dtype"]]
    shape = tuple(int(extent) for extent in entry["shape"])
    if (
        not 0 <= begin <= end <= len(data) - start
        or end - begin != int(np.prod(shape, dtype=object)) * dtype.itemsize
    ):
        raise ValueError(
            f"a tensor of {shape} {dtype} at {begin} to {end} is outside the file or of another size"
        )
    return np.frombuffer(data, dtype, (end - begin) // dtype.itemsize, start + begin).reshape(shape)
