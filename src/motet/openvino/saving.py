"""The compiled functions inside saved models: a call's last input is its artifact, as a constant of bytes.

A model that is being run has calls without this input: for dynamic shapes, OpenVINO would copy it in every call.
"""

# openvino need not be installed, and has no types for its bindings.
# Where it is not installed, pyright takes this package for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from openvino import opset13 as operations

from motet.artifact.reader import Artifact
from motet.openvino.call import MotetCall, calls_in
from motet.openvino.runner import Runner


def with_code(model: Any) -> Any:
    """A copy of `model` whose calls have their artifacts."""
    made = model.clone()
    for call, runner in _calls(made):
        code = operations.constant(_bytes(runner.artifact), shared_memory=True)
        code.set_friendly_name(f"{call.get_friendly_name()}.artifact")
        _replace(call, [*_arguments(call, runner), code.output(0)], runner)
    return made


def without_code(model: Any) -> list[Runner]:
    """Remove the artifacts of the calls in `model`. Returns what runs them."""
    runners: list[Runner] = []
    for call, runner in _calls(model):
        _replace(call, _arguments(call, runner), runner)
        runners.append(runner)
    return runners


def _calls(model: Any) -> list[tuple[MotetCall, Runner]]:
    return [(call, call.runner) for call in calls_in(model) if call.runner is not None]


def _arguments(call: Any, runner: Runner) -> list[Any]:
    return [call.input_value(index) for index in runner.arguments]


def _replace(call: MotetCall, inputs: Sequence[Any], runner: Runner) -> None:
    new = MotetCall(inputs, runner, call.part or call.get_friendly_name())
    new.set_friendly_name(call.get_friendly_name())
    for before, after in zip(call.outputs(), new.outputs(), strict=True):
        names = before.get_names()
        for read in before.get_target_inputs():
            read.replace_source_output(after)
        after.get_tensor().set_names(names)


def _bytes(artifact: Artifact) -> np.ndarray[Any, Any]:
    """The artifact's content in place. OpenVINO takes no read-only arrays without a copy, although it only reads."""
    data = np.frombuffer(artifact.data, np.uint8)
    memory: Any = (ctypes.c_char * data.size).from_address(data.ctypes.data)
    memory.owner = artifact
    return np.frombuffer(memory, np.uint8)
