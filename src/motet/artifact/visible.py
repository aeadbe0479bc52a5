"""What callers see of functions: neither the inputs that stand for values, nor the functions that compute these."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from motet.artifact.schema import Signature


def visible(signature: Signature) -> Signature:
    """`signature` with the inputs that callers give."""
    given = [spec for spec in signature.inputs if spec.value is None]
    if len(given) == len(signature.inputs):
        return signature
    symbols = [symbol for symbol in signature.symbols if symbol.input < len(given)]
    return structs.replace(signature, inputs=given, symbols=symbols, constraints=[])


def value_functions(signatures: Iterable[Signature]) -> set[str]:
    """The names of the functions that compute values for others."""
    return {spec.value.function for signature in signatures for spec in signature.inputs if spec.value is not None}


def callable_functions(signatures: Iterable[Signature]) -> list[Signature]:
    """The functions that callers see, as they see them."""
    known = list(signatures)
    hidden = value_functions(known)
    return [visible(signature) for signature in known if signature.name not in hidden]
