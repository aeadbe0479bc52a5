"""The options of the compiler, `--option KEY=VALUE` and `motet.compile(…, options=…)`."""

from __future__ import annotations

import ast
import functools
import inspect
import os
from dataclasses import dataclass, fields
from typing import Literal

from motet.errors import OptionError

# Sizes: bytes, or a number with the suffix K, M or G.
Size = int | str
File = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a compilation; None leaves an option at its default. On the command line and in mappings their
    names have hyphens: `--option keep-source=true`, `options={"keep-source": True}`, `Options(keep_source=True)`."""

    jobs: int | None = None
    """the number of processes that compile kernels at once; default: the number of processors"""

    memory_limit: Size | None = None
    """the largest memory for intermediate tensors of a function; bytes, or a number with the suffix K, M or G;
    default: 1.25 times the minimum, or 1 MiB if that is more"""

    fuse_siblings: bool | None = None
    """true; or false: a separate kernel for each of the convolutions of one tensor whose results meet in one
    operation, so that they may run at once"""

    unchecked_indices: bool | None = None
    """false; or true: omit the bounds checks of indices that are only known in a call; an index out of bounds then
    reads or writes arbitrary memory, or crashes the process"""

    tokens: Literal["repair", "strict"] | None = None
    """repair: operations of the dialect gpu that wait for too little run in the order of the program, with a warning;
    or strict: refuse them"""

    tune_schedule: Literal["off", "measure"] | None = None
    """off, or measure: run every function on this machine in several schedules (commands one after the other or at
    once, in other orders, with more memory) and keep the fastest of each"""

    tune_inputs: str | None = None
    """the extents with which to measure functions that have dynamic ones; shapes of all inputs, such as
    64x128xf32,128xf32; for several functions NAME:SHAPES;NAME:SHAPES"""

    tune: Literal["off", "candidates", "measure"] | None = None
    """off; candidates: keep the best few forms of each GPU kernel in the artifact, for motet tune to choose from; or
    measure: choose now, on this machine's GPU"""

    library: Literal["tuned", "cublaslt", "none"] | None = None
    """when cuBLASLt, if it is installed, computes products instead of GPU kernels, which remain as fallback: tuned: if
    it was measured to be faster (the default); cublaslt: whenever it can; none: never"""

    tuning: File | None = None
    """the fastest forms of GPU kernels; a file that motet tune -o FILE writes. With tune=measure the file is completed,
    or created"""

    schedules: File | None = None
    """schedules of kernels (tiles, blocks, tasks, forms); a file that motet inspect --schedules --json prints, or the
    part of it that should differ from the compiler's choice; or a database of motet lab, whose best schedule each
    kernel gets"""

    keep_source: bool | None = None
    """false; or true: keep the source in the artifact, so that motet run and bench can --verify it; weights of an ONNX
    model that are used unchanged are stored once, all other constants twice"""

    sequences: str | None = None
    """the elements of an ONNX model's sequence inputs, and the optional inputs that are never given;
    x=3x4xf32,?x4xf32;y=none"""

    precision: Literal["f32", "bf16", "f16", "int8"] | None = None
    """f32; or bf16, f16: round the operands of f32 products and convolutions to 16 bits when they are multiplied, with
    sums in f32; or int8: round those of products with constant weights to bytes in each call, with a scale for each row
    and column; for the processors of the host"""

    strict: bool | None = None
    """false; or true: refuse a precision for which a processor level has no instructions, instead of multiplying its
    numbers in f32"""

    rates: File | None = None
    """the rates of devices, for automatic placement; a file that motet devices --measure -o FILE writes"""

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The options that are set, by their names with hyphens, as text."""
        given = ((spelled(field.name), getattr(self, field.name)) for field in fields(self))
        return tuple((name, option_text(name, value)) for name, value in given if value is not None)


def spelled(field: str) -> str:
    """The name of an option on the command line."""
    return field.replace("_", "-")


def option_text(name: str, value: object) -> str:
    """A value as on the command line. Raises OptionError for a value of another type than those of options."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise OptionError(f"option {name}: {value!r} is of type {type(value).__qualname__}; expected text, a number, "
                      "True or False, or a path")


@functools.cache
def option_help() -> dict[str, str]:
    """The documentation of each option, by its name on the command line: the strings after the fields of `Options`."""
    body = ast.parse(inspect.getsource(Options)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            assert isinstance(text.value, ast.Constant)
            found[spelled(field.target.id)] = " ".join(str(text.value.value).split())
    return found
