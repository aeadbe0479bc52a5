"""Functions as callers see them: without inputs that represent values, without states, and without the functions that
compute these."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from motet.artifact.schema import Signature
from motet.artifact.states import INITIAL_STATE


def visible(signature: Signature) -> Signature:
    """`signature` reduced to the inputs that callers give, and the results that they get."""
    given = [spec for spec in signature.inputs if spec.value is None and spec.state is None]
    results = [spec for spec in signature.results if spec.state is None]
    if len(given) == len(signature.inputs) and len(results) == len(signature.results):
        return signature
    symbols = [symbol for symbol in signature.symbols if symbol.input < len(given)]
    valued = any(spec.value is not None for spec in signature.inputs)
    constraints = [] if valued else signature.constraints
    return structs.replace(signature, inputs=given, results=results, symbols=symbols, constraints=constraints)


def hidden_functions(signatures: Iterable[Signature]) -> set[str]:
    """The names of the functions that compute values or initial states."""
    known = list(signatures)
    values = {spec.value.function for signature in known for spec in signature.inputs if spec.value is not None}
    return values | {signature.name for signature in known if signature.name == INITIAL_STATE}


def callable_functions(signatures: Iterable[Signature]) -> list[Signature]:
    """The signatures of the functions that callers see, without hidden inputs and results."""
    known = list(signatures)
    hidden = hidden_functions(known)
    return [visible(signature) for signature in known if signature.name not in hidden]
