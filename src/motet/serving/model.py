"""A served model: a session's default function with its inputs and results as the protocol names them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from motet.artifact.states import has_state
from motet.errors import CallError
from motet.runtime.function import Function
from motet.runtime.session import Session
from motet.runtime.tensors import Array, as_list
from motet.serving.protocol import Port, port_of

VERSION = "1"  # artifacts have no versions: the protocol's is the same for all


class ServedModel:
    """A session's function under a name. Raises CallError if the function keeps state between calls, or has a tensor
    that the protocol cannot carry."""

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.session = session
        signature = session.signature
        self.function: Function = session[signature.name]
        if has_state(session.artifact.functions[signature.name]):
            raise CallError(f"model {name}: it keeps state between calls, which several clients would share")
        try:
            self.inputs: list[Port] = [port_of(spec, f"input_{i}") for i, spec in enumerate(signature.inputs)]
            self.results: list[Port] = [port_of(spec, f"output_{i}") for i, spec in enumerate(signature.results)]
        except CallError as error:
            raise CallError(f"model {name}: {error}") from None
        self._written = {spec.destination for spec in signature.results if spec.destination is not None}

    def describe(self) -> dict[str, Any]:
        """The model's metadata, as in the protocol."""
        return {
            "name": self.name, "versions": [VERSION], "platform": "motet",
            "inputs": [port.describe() for port in self.inputs],
            "outputs": [port.describe() for port in self.results],
        }

    def submit(self, arrays: Sequence[Array]) -> Future[list[Array]]:
        """Start a call; arrays that it writes are copied first."""
        given = [array.copy() if i in self._written else array for i, array in enumerate(arrays)]
        return self.function.submit(*given)

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        return as_list(self.submit(arrays).result())
