"""The arguments of a call: in order, or by the names of the inputs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from motet.artifact.schema import Signature, TensorSpec
from motet.errors import CallError
from motet.runtime.tensors import show_shape


def in_order(signature: Signature, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """`arguments`, or the only one of them, a dict of all inputs by name, and `named`, in the order of the inputs. An
    input without a name has its number. Raises CallError for unknown names, for inputs given twice or not at all, and
    for dicts as inputs."""
    names = [spec.name or str(index) for index, spec in enumerate(signature.inputs)]
    if len(arguments) == 1 and isinstance(arguments[0], dict):
        arguments, named = (), {**arguments[0], **named}
    if len(arguments) > len(names):
        raise CallError(f"{signature.name}: {len(arguments)} arguments given, {len(names)} expected: "
                        f"{', '.join(names)}")
    found = dict(zip(names, arguments, strict=False))
    for name, value in named.items():
        if name not in names:
            raise CallError(f"{signature.name}: no input {name!r}; {nearest(name, names)}")
        if name in found:
            raise CallError(f"{signature.name}: input {name!r} is given twice, by its place and by its name")
        found[name] = value
    if missing := [name for name in names if name not in found]:
        raise CallError(f"{signature.name}: inputs not given: {', '.join(missing)}")
    ordered = [found[name] for name in names]
    for index, (value, spec) in enumerate(zip(ordered, signature.inputs, strict=True)):
        if isinstance(value, dict):
            raise CallError(f"{place_of(signature.name, index, spec)}: dict given; expected a tensor, or as the only "
                            "argument a dict of all inputs by name")
    return ordered


def nearest(name: object, known: Sequence[str]) -> str:
    """`did you mean 'x'? there are: x, y`."""
    close = difflib.get_close_matches(str(name), known, 1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{meant}there are: {', '.join(known) or 'none'}"


def show_signature(signature: Signature) -> str:
    """`main(x: batchx3xf32) -> y: batchx4xf32`."""
    inputs = ", ".join(map(_show_spec, signature.inputs))
    results = ", ".join(map(_show_spec, signature.results))
    return f"{signature.name}({inputs}) -> {results or 'nothing'}"


def _show_spec(spec: TensorSpec) -> str:
    kind = f"{show_shape(spec.shape)}x{spec.dtype}" if spec.shape else spec.dtype
    return f"{spec.name}: {kind}" if spec.name else kind


def place_of(function: str, index: int, spec: TensorSpec) -> str:
    """The place of an argument in messages: `main: argument 0 ("x")`."""
    return f'{function}: argument {index} ("{spec.name}")' if spec.name else f"{function}: argument {index}"
