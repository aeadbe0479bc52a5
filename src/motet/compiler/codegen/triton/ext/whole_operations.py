"""Selects the class of an operation on whole tensors (`kernels/linalg_ext.py`), and holds what the classes share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.expressions import apply, ceildiv
from motet.artifact.schema import Expr
from motet.compiler.codegen.gpu.accesses import is_wide
from motet.compiler.codegen.triton.text.program import Form, TritonCode, TritonProgram
from motet.compiler.codegen.triton.text.scalars import pointer_type
from motet.compiler.codegen.triton.text.writer import STATUS, symbol_name
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.linalg_ext import ExtOperand, Whole, product
from motet.compiler.kernels.strides import ONE, Extent


def text_of(extent: Extent) -> str:
    """An extent as program text."""
    parts = [symbol_name(symbol) for symbol in extent.symbols]
    if extent.factor != 1 or not parts:
        parts.insert(0, str(extent.factor))
    return "(" + " * ".join(parts) + ")" if len(parts) > 1 else parts[0]


@dataclass(frozen=True)
class LaunchText:
    """One launch: the lines of its function, the `helpers` that it calls, and its grid. Its arguments are `v0`, `v1`, …
    for the kernel's values, its workspaces and its status, then the symbols."""

    lines: Sequence[str]
    tasks: Expr
    warps: int
    helpers: Sequence[str] = ()


def code_of(
    whole: Whole, texts: Sequence[LaunchText], spaces: Sequence[tuple[str, int]] = ()
) -> TritonCode:
    """The kernel's code with the launches in order; `spaces` are the dtypes and sizes of its workspaces."""
    kernel = whole.kernel
    dtypes = [*(value.dtype for value in kernel.values), *(dtype for dtype, _ in spaces)]
    if whole.checks:  # the status is the last buffer
        dtypes.append(STATUS.dtype)
    size = "i64" if is_wide(kernel) else "i32"
    names = [*(f"v{number}" for number in range(len(dtypes))), *map(symbol_name, kernel.symbols)]
    programs: list[TritonProgram] = []
    for position, text in enumerate(texts):
        symbol = kernel.name if position == 0 else f"{kernel.name}_{position}"
        programs.append(TritonProgram(
            symbol, tuple(map(pointer_type, dtypes)), (size,) * len(kernel.symbols),
            (Form(_module(kernel, whole.kind, symbol, names, text), text.tasks, text.warps),), about=whole.kind,
        ))
    moved = sum(item_bytes(value.dtype) * (product(value.shape).known or 0) for value in kernel.values)
    return TritonCode(
        whole.kind, "", tuple(Phase(program.symbol, program.forms[0].tasks) for program in programs),
        workspaces=tuple(item_bytes(dtype) * count for dtype, count in spaces), bytes=moved,
        programs=tuple(programs), checks=whole.checks,
    )


def _module(kernel: Kernel, kind: str, symbol: str, names: Sequence[str], text: LaunchText) -> str:
    about = ", ".join("x".join(map(str, (*value.shape, value.dtype))) for value in kernel.values)
    helpers = "".join(f"@triton.jit\n{helper}\n\n\n" for helper in text.helpers)
    body = "\n".join(f"    {line}" for line in text.lines)
    return (
        f'"""{kind}: {about}"""\n\nimport triton\nimport triton.language as tl\n\n\n'
        f"{helpers}@triton.jit\ndef {symbol}({', '.join(names)}):\n{body}\n"
    )


def program_number(kernel: Kernel) -> str:
    """The text of a program's index in its grid, wide enough for offsets."""
    return "tl.program_id(0)" + (".to(tl.int64)" if is_wide(kernel) else "")


def grid(count: Extent, block: int, times: Extent = ONE) -> Expr:
    """The grid: `times` · the number of blocks of `block` that cover `count`."""
    return apply("*", times.expression, ceildiv(count.expression, block))


def read_text(operand: ExtOperand, offset: str) -> str:
    """An element of an operand as stored, without a mask; for a splat, its value."""
    return f"tl.load(v{operand.value} + ({offset}))"
