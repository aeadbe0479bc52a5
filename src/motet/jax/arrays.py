"""Arrays of JAX as arguments of sessions, and results as arrays of JAX; in place where memory is aligned enough."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from motet.errors import OptionError
from motet.runtime.jax_arrays import to_jax


def import_jax() -> Any:
    """JAX. Raises OptionError if it is not installed."""
    try:
        return importlib.import_module("jax")
    except ImportError:
        raise OptionError("motet.jax: jax is not installed; pip install 'motet[jax]'") from None


def argument_of(value: Any, kind: Any, jax: Any) -> Any:
    """`value` for a session; `kind` is its abstract value. Arrays of JAX are passed in place."""
    if isinstance(value, jax.Array):
        return jax.block_until_ready(value)
    return np.asarray(value, kind.dtype)


def result_of(value: Any, kind: Any, jax: Any) -> Any:
    """A result of a session as an array of JAX of the dtype of `kind`."""
    if isinstance(value, jax.Array) and value.dtype == kind.dtype:
        return value
    array = np.asarray(value)
    return to_jax(array if array.dtype == kind.dtype else array.view(kind.dtype), jax)  # integers without a sign
