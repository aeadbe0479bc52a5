"""The inputs of a measured call: given ones, or random arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from motet.errors import CallError, OptionError

if TYPE_CHECKING:
    from motet.artifact.schema import Signature
    from motet.specs import Array


def inputs_of(given: list[Array], signature: Signature, file: str, batch: int | None = None) -> list[Array]:
    """`given`, validated, or random arrays if none are given. Raises CallError, and OptionError for a `batch` that
    does not apply."""
    from motet.tools.run import check_inputs

    if given and batch is not None:
        raise OptionError(f"--batch {batch}: not with --input, which gives the extents; expected one of them")
    arrays = given or random_inputs(signature, file, batch)
    check_inputs(signature, arrays, file)
    return arrays


def random_inputs(signature: Signature, file: str, batch: int | None = None) -> list[Array]:
    """An array for each input; `batch` is the extent of the first axis, if it is dynamic. Raises CallError for other
    dynamic extents, and OptionError if no first axis is dynamic."""
    from motet.artifact.expressions import evaluate, symbols_of
    from motet.specs import random_tensor
    from motet.tools.show import show_signature, show_tensor

    known: Mapping[str, int] = {} if batch is None else {_batch_axis(signature, file, batch): batch}
    arrays: list[Array] = []
    for index, spec in enumerate(signature.inputs):
        if any(symbols_of(extent) - set(known) for extent in spec.shape):
            others = "" if batch is None else f", with other extents than those of --batch {batch}"
            raise CallError(f"{file}: input {index} of {show_signature(signature)} has dynamic extents{others}; "
                            f"give every input, this one as --input {show_tensor(spec)} with numbers")
        arrays.append(random_tensor([evaluate(extent, known) for extent in spec.shape], spec.dtype, index))
    return arrays


def _batch_axis(signature: Signature, file: str, batch: int) -> str:
    """The symbol of the first axis that is dynamic."""
    from motet.tools.show import show_signature

    firsts: Sequence[object] = [spec.shape[0] for spec in signature.inputs if spec.shape]
    for extent in firsts:
        if isinstance(extent, str):
            return extent
    raise OptionError(f"--batch {batch}: {file}: {show_signature(signature)} has no input whose first extent is "
                      "dynamic; compile a program with a dynamic first extent, or leave the option out")
