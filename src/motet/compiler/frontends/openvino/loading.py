"""Reads OpenVINO models into programs: as ONNX models, whose front end lowers them.

The function is named `main`. Its arguments are the model's parameters in order, and its results the model's, by the
names of their tensors. Constants are mapped from the IR's file, not copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.compiler.frontends.onnx.loading import load_model
from motet.compiler.frontends.onnx.metadata import write_bounds, write_states
from motet.compiler.frontends.onnx.model import require_onnx
from motet.compiler.frontends.openvino.files import read_ir
from motet.compiler.frontends.openvino.translate import read
from motet.compiler.ir.program import Program
from motet.compiler.protobuf import Content
from motet.errors import CompileError, Location


def load_openvino(data: Content, file: str, path: str = "") -> Program:
    """Reads IR into a program with one public function `main`; for the arguments and errors see `files.read_ir` and
    `translate.read`."""
    require_onnx()
    return load_model(read(read_ir(data, file, path), file))


def serialize_model(model: Any) -> bytes:
    """An `openvino.Model` for the compiler: as a serialised ONNX model, with its states in the metadata. Raises
    CompileError for operators without a lowering, and for a model over 2 GiB."""
    require_onnx()
    import onnx

    read_one = read(model, model.get_friendly_name() or "<openvino.Model>")
    proto, constants = read_one.proto, dict(read_one.constants)
    initials = [f"{one.input} initial" for one in read_one.states]
    constants.update(zip(initials, (one.initial for one in read_one.states), strict=True))
    if sum(array.nbytes for array in constants.values()) >= 2**31 - 2**20:
        raise CompileError("its constants are over 2 GiB; save it by openvino.save_model(model, 'model.xml', "
                           "compress_to_fp16=False), and give its path", Location(read_one.file))
    for name, array in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
    if read_one.states:
        write_states(proto, read_one.states, initials)
    if read_one.bounds:
        write_bounds(proto, read_one.bounds)
    return proto.SerializeToString()
