"""Calls with tensors by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from motet.argument_kinds import check_kind
from motet.artifact.schema import TensorSpec
from motet.errors import CallError
from motet.runtime.function import Function


def call_by_name(function: Function, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
    """The results `names` of `function`, all of them for None, in this order. `feeds` has each input by its name.

    Raises CallError for names that the function lacks, and for inputs that are missing.
    """
    return results_by_name(function, names, function(*arguments_by_name(function, names, feeds)))


def arguments_by_name(function: Function, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
    """The inputs in order, for a call of which the results `names` are wanted. Raises CallError."""
    if not _is_mapping(feeds):
        raise CallError(f"{function.name}: feeds: {type(feeds).__qualname__} given; expected a mapping of names of "
                        "inputs to arrays")
    if names is not None:
        check_kind(f"{function.name}: names", names, Iterable, "a list of names of results", CallError)
    if isinstance(names, str):
        raise CallError(f"{function.name}: names: the text {names!r} given; expected a list of names, [{names!r}]")
    inputs = names_of(function.signature.inputs)
    check_inputs(function.name, inputs, feeds)
    if names is not None:
        _check(function.name, "result", names, names_of(function.signature.results))
    return [feeds[name] for name in inputs]


def results_by_name(function: Function, names: Sequence[str] | None, values: Any) -> list[Any]:
    """The results `names`, all of them for None, of what a call has returned."""
    every = [] if values is None else list(values) if isinstance(values, tuple) else [values]
    if names is None:
        return every
    by_name = dict(zip(names_of(function.signature.results), every, strict=True))
    return [by_name[name] for name in names]


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def check_inputs(function: str, names: Sequence[str], feeds: Mapping[str, Any]) -> None:
    """Raises CallError if `feeds` has other inputs than `names`."""
    _check(function, "input", feeds, names)
    if missing := [name for name in names if name not in feeds]:
        raise CallError(f"{function}: inputs not given: {', '.join(missing)}")


def names_of(specs: Sequence[TensorSpec]) -> list[str]:
    """The names of tensors; one without a name has its number."""
    return [spec.name or str(index) for index, spec in enumerate(specs)]


def _check(function: str, kind: str, given: Sequence[str] | Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if not isinstance(name, str) or name not in known:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CallError(f"{function}: no {kind} {name!r}; there are: {', '.join(known) or 'none'}")
