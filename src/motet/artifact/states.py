"""State: tensors that a session keeps between calls, for the globals that a program's functions write.

Inputs and results with a `state` are hidden from callers. Such inputs follow those that callers give. The initial
values are returned by a function without inputs that has a reserved name.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from motet.artifact.schema import Signature, TensorSpec
from motet.errors import ArtifactError

INITIAL_STATE = "motet.initial_state"


def initial_states(signatures: Mapping[str, Signature]) -> dict[str, TensorSpec]:
    """The states of a program by name, in the order in which the function of initial values returns them."""
    found = signatures.get(INITIAL_STATE)
    return {} if found is None else {spec.state: spec for spec in found.results if spec.state is not None}


def has_state(signature: Signature) -> bool:
    return any(spec.state is not None for spec in (*signature.inputs, *signature.results))


def stateless(signature: Signature) -> Signature:
    """`signature` with its states as ordinary inputs and results."""
    if not has_state(signature):
        return signature
    inputs, results = (
        [structs.replace(spec, state=None) for spec in specs] for specs in (signature.inputs, signature.results)
    )
    return structs.replace(signature, inputs=inputs, results=results)


def check_states(signatures: Mapping[str, Signature], where: str) -> None:
    """Raises ArtifactError unless every state has an initial value of its shape and dtype, a function has each state at
    most once as an input and as a result, and states follow the callers' inputs."""
    initial = signatures.get(INITIAL_STATE)
    states = initial_states(signatures)
    if initial is not None and (initial.inputs or len(states) != len(initial.results)):
        raise ArtifactError(f"{where}: function {INITIAL_STATE!r}: expected no inputs, and each result a state")
    for signature in signatures.values():
        place = f"{where}: function {signature.name!r}"
        for specs in (signature.inputs, signature.results):
            named = [spec for spec in specs if spec.state is not None]
            if len({spec.state for spec in named}) != len(named):
                raise ArtifactError(f"{place}: a state stands there twice")
            for spec in named:
                _check_state(spec, states, place)
        given = [number for number, spec in enumerate(signature.inputs) if spec.state is None and spec.value is None]
        first = next((number for number, spec in enumerate(signature.inputs) if spec.state is not None), len(given))
        if given and given[-1] > first:
            raise ArtifactError(f"{place}: input {first} is a state; expected it behind all that calls give")


def _check_state(spec: TensorSpec, states: Mapping[str, TensorSpec], place: str) -> None:
    known = states.get(spec.state or "")
    if known is None:
        raise ArtifactError(f"{place}: state {spec.state!r}: there are {', '.join(states) or 'none'}")
    same = known.shape == spec.shape and known.dtype == spec.dtype
    if not same or not all(isinstance(extent, int) for extent in spec.shape):
        raise ArtifactError(f"{place}: state {spec.state!r}: shape or dtype is not that of its initial value")
