"""What OpenVINO's properties say of precision, threads and streams."""

# openvino need not be installed, and has no types for its bindings.
# Where it is not installed, pyright takes this package for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import openvino as ov
from openvino import opset13 as operations

from motet.errors import OptionError
from motet.openvino.compiled import meaning

PRECISION = "INFERENCE_PRECISION_HINT"
_AS_WRITTEN = ("dynamic", "undefined")  # for EXECUTION_MODE_HINT=ACCURACY: the precision of the model
HINTS = ("f32", "bf16")
_SPELLINGS = {"bfloat16": "bf16", "float32": "f32", "float16": "f16", "float": "f32"}


@dataclass(frozen=True)
class Settings:
    """`config` are OpenVINO's properties, which include the precision, `f32` or `bf16`."""

    config: Mapping[str, Any]
    precision: str


def read_settings(core: Any, device: str, hint: Any, config: Mapping[str, Any] | None) -> Settings:
    """The settings of a model compiled with `config`; `hint` is the precision, None for OpenVINO's choice.

    Raises OptionError for a hint or property that the device does not know.
    """
    given = dict(config or {})
    if hint is not None:
        asked = spelled(hint)
        if asked not in HINTS:
            raise OptionError(f"hint {hint!r}: no such precision; expected one of {', '.join(HINTS)}, or None for "
                              "OpenVINO's choice")
        if PRECISION in given and spelled(given[PRECISION]) != asked:
            raise OptionError(f"hint {asked!r}: the property {PRECISION} is {spelled(given[PRECISION])}; leave one out")
        given[PRECISION] = asked
    # Properties depend on each other, such as the precision on the execution mode: a compiled model knows the result.
    x = operations.parameter([1], ov.Type.f32)
    try:
        small = core.compile_model(ov.Model([operations.relu(x)], [x], "settings"), device, given)
    except RuntimeError as error:
        raise OptionError(f"device {device}: {meaning(str(error))}") from None
    precision = spelled(small.get_property(PRECISION))
    if hint is None and precision in _AS_WRITTEN:
        return Settings(given, "f32")
    if precision not in HINTS or (hint is not None and precision != spelled(hint)):
        asked = "the properties" if hint is None else f"hint {spelled(hint)!r}"
        raise OptionError(f"{asked}: device {device} computes in {precision}; expected one of {', '.join(HINTS)} that "
                          "it has")
    return Settings({**given, PRECISION: precision}, precision)


def threads_of(compiled: Any) -> int | None:
    """The threads of one request: OpenVINO's threads, divided among its streams. None if the device has none."""
    try:
        threads, streams = compiled.get_property("INFERENCE_NUM_THREADS"), compiled.get_property("NUM_STREAMS")
    except RuntimeError:
        return None
    return max(1, int(threads) // max(1, int(streams)))


def spelled(precision: Any) -> str:
    """`bf16` of `bf16`, `ov.Type.bf16` or numpy's name."""
    name = precision.get_type_name() if isinstance(precision, ov.Type) else str(precision).lower()
    return _SPELLINGS.get(name, name)
