"""Tiles of a nest that a user's microkernel computes, and the modules of its code.

    whole tile      initial values where the first terms are added, then a call
    other tiles     the loops that the microkernel replaces, with their flags

A tile is whole if it has the fixed extents of the microkernel, and reads no element of padding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from motet.compiler.codegen.cpu.emit.addressing import Lanes, load_stored
from motet.compiler.codegen.cpu.emit.builder import I8, I64, PTR, Index
from motet.compiler.codegen.cpu.emit.compute_types import storage_type
from motet.compiler.codegen.cpu.nest.frames import NestFrame, NestPoint, interior
from motet.compiler.codegen.cpu.nest.plan import NestPlan, PlannedMicrokernel
from motet.compiler.kernels.kernel import Access, item_bytes
from motet.compiler.kernels.microkernel import axis_strides
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.nested_stage import NestReason
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess
from motet.compiler.targets.cpu import CpuTarget, bases_of
from motet.errors import OptionError

_LABEL = re.compile(r"^([A-Za-z_.$][\w.$]*):", re.MULTILINE)
_DROPPED = re.compile(
    r"^\s*\.(file|ident|globl|global|addrsig|addrsig_sym|weak|hidden|section\s+\.note)\b.*$", re.MULTILINE
)
_MOST_ON_STACK = 64 << 10  # bytes of a result that a kernel of an artifact writes

Remainder = Callable[[NestPlan, NestPoint], None]


def microkernel_reasons(plan: NestPlan, label: str, target: CpuTarget) -> Iterator[NestReason]:
    """Why the microkernel of `plan` cannot be called: its code is for another processor, or operands have other types
    or strides than its interface."""
    micro = plan.micro
    if micro is None:
        return
    kernel = micro.kernel
    known = [f"{target.family}:{name}" for name in (target.name, *bases_of(target))]
    if kernel.language == "assembly" and kernel.target not in known:
        why = f"{kernel.name} is assembly for {kernel.target}"
        yield NestReason("tensorize", label, f"code for {' or '.join(known)}, or LLVM IR", why)
    if target.family == "opencl":
        yield NestReason("tensorize", label, "a device with machine code, such as the host",
                         "opencl devices compile SPIR-V or OpenCL C")
    for name, dtype, access, operand in _operands(plan, micro):
        what = f"{name} of {kernel.name}"
        strides = axis_strides(access, micro.match, operand.strides)
        if operand.dtype != dtype:
            copied = "; a buffer of the result has the type of its sums" if operand in plan.nest.outputs else ""
            yield NestReason("tensorize", label, f"operands of {dtype}{copied}", f"{what} would be of {operand.dtype}")
        elif strides is None:
            yield NestReason("tensorize", label, "a pack of that operand", f"{what} has no strides of axes")
        elif kernel.interface == "strided" and strides and strides[-1] != ONE:
            yield NestReason("tensorize", label, "a pack of that operand, in the order of the loops inside",
                             f"the last axis of {what} is not contiguous: its stride is {_shown(strides[-1])}")
        elif kernel.interface == "tasks" and _too_large(micro, access, dtype):
            yield NestReason("tensorize", label, f"at most {_MOST_ON_STACK} bytes", f"{what} is larger")
        elif kernel.interface == "tasks" and operand not in plan.nest.outputs and strides != _dense(micro, access):
            yield NestReason("tensorize", label, "a pack of that operand, in the order of the loops inside",
                             f"{what} is not dense: its strides are {', '.join(map(_shown, strides))}")


def _operands(plan: NestPlan, micro: PlannedMicrokernel) -> Iterator[tuple[str, str, Access, StridedAccess]]:
    """The name, type and access of each operand of the microkernel, and the nest's operand."""
    given = [*(plan.nest.inputs[n] for n in micro.positions), plan.nest.outputs[0]]
    meaning = micro.meaning
    yield from zip(meaning.operands, meaning.dtypes, meaning.accesses, given, strict=True)


def _dense(micro: PlannedMicrokernel, access: Access) -> list[Extent]:
    extents = _extents(micro, access)
    strides: list[Extent] = []
    running = 1
    for extent in reversed(extents):
        strides.append(Extent(running))
        running *= extent
    return strides[::-1]


def _extents(micro: PlannedMicrokernel, access: Access) -> list[int]:
    """The extents of an operand whose dimensions all have fixed sizes."""
    sizes = micro.meaning.stage.sizes
    known = {d: size for d, size in enumerate(sizes) if isinstance(size, int)}
    return [1 + sum(c * (known[d] - 1) for d, c in entry.terms) for entry in access.map]


def _too_large(micro: PlannedMicrokernel, access: Access, dtype: str) -> bool:
    return prod(_extents(micro, access)) * item_bytes(dtype) > _MOST_ON_STACK


def _shown(stride: Extent) -> str:
    return " * ".join([str(stride.factor), *stride.symbols])


# -- calls -----------------------------------------------------------------------------------------


def symbol_of(kernel: str, micro: Microkernel) -> str:
    """The symbol of a microkernel in the object of the kernel named `kernel`."""
    return f"{kernel}_micro_{micro.name}"


def write_microkernel(f: NestFrame, plan: NestPlan, point: NestPoint, remainder: Remainder) -> None:
    """Write the tile at `point`; `remainder(plan, point)` writes the loops of a plan."""
    micro = plan.micro
    assert micro is not None
    rest = plan.remainder
    whole = _whole(f, plan, micro, point)
    if whole is False:
        remainder(rest, point)
        return

    def call() -> None:
        if micro.meaning.accumulates:
            _begin(f, plan, point, lambda: remainder(rest.without_reductions(), point))
        if micro.kernel.interface == "tasks":
            _call_tasks(f, plan, micro, point)
        else:
            _call_strided(f, plan, micro, point)

    if whole is True:
        call()
    else:
        f.branches(whole, call, lambda: remainder(rest, point))


def _whole(f: NestFrame, plan: NestPlan, micro: PlannedMicrokernel, point: NestPoint) -> Any:
    """Whether the tile is whole: True, False, or a value."""
    test: Any = True
    for size, d in zip(micro.meaning.stage.sizes, micro.match.dims, strict=True):
        left = point.left[d]
        if isinstance(left, int):
            if left != size if isinstance(size, int) else left == 0:
                return False
            continue
        comparison = ("==", size) if isinstance(size, int) else (">", 0)
        found = f.icmp_signed(comparison[0], left, f.index(comparison[1]))
        test = found if test is True else f.and_(test, found)
    if any(operand.bounds for operand in plan.nest.inputs):
        found = interior(f, plan.nest, point.base, point.left)
        test = found if test is True else f.and_(test, found)
    return test


def _begin(f: NestFrame, plan: NestPlan, point: NestPoint, initial: Callable[[], None]) -> None:
    """Write initial values, unless the results have earlier terms."""
    test: Any = None
    for d in plan.partial:
        base, split = point.base[d], plan.split
        passed = f.irem(base, split[1]) if split is not None and split[0] == d else base
        if isinstance(passed, int):
            if passed:
                return
            continue
        zero = f.icmp_signed("==", passed, f.index(0))
        test = zero if test is None else f.and_(test, zero)
    if test is None:
        initial()
    else:
        f.branches(test, initial, lambda: None)


def _call_strided(f: NestFrame, plan: NestPlan, micro: PlannedMicrokernel, point: NestPoint) -> None:
    pointers: list[Any] = []
    numbers: list[Index] = []
    for _, _, access, operand in _operands(plan, micro):
        pointers.append(f.address(operand, point.base))
        strides = axis_strides(access, micro.match, operand.strides)
        assert strides is not None
        numbers += [f.extent(stride) for stride in strides[:-1]]
    sizes = zip(micro.meaning.stage.sizes, micro.match.dims, strict=True)
    numbers += [point.left[d] for size, d in sizes if not isinstance(size, int)]
    f.call(_declared(f, micro, [PTR] * len(pointers) + [I64] * len(numbers)), [*pointers, *map(f.index, numbers)])


def _declared(f: NestFrame, micro: PlannedMicrokernel, types: Sequence[ir.Type]) -> Any:
    name = symbol_of(f.kernel.name, micro.kernel)
    found = f.module.globals.get(name)
    return found or ir.Function(f.module, ir.FunctionType(ir.VoidType(), types), name)


def _call_tasks(f: NestFrame, plan: NestPlan, micro: PlannedMicrokernel, point: NestPoint) -> None:
    """Call a kernel of an artifact: the result's elements before and after the call are copies on the stack."""
    *operands, (result, dtype, access, place) = _operands(plan, micro)
    kind, extents = storage_type(dtype), _extents(micro, access)
    before, after = (f.stack(name, kind, prod(extents)) for name in ("before", "after"))
    dims = [micro.match.dims[entry.dims[0]] for entry in access.map]

    def copy_in(position: Index, at: Sequence[Index]) -> None:
        f.store_vector(load_stored(f, place, at, Lanes(None, 1)), f.at(before, position, kind), kind)

    def copy_out(position: Index, at: Sequence[Index]) -> None:
        f.store_vector(f.load_vector(f.at(after, position, kind), kind, 1), f.address(place, at), kind)

    _each_element(f, dims, extents, point.base, copy_in)
    addresses = {name: f.address(operand, point.base) for name, _, _, operand in operands}
    addresses |= {result: before, "": after}
    pointers = f.stack("micro", PTR, max(1, len(micro.kernel.buffers)))
    for number, name in enumerate(micro.kernel.buffers):
        f.store(addresses[name], f.at(pointers, number, PTR), align=8)
    scratch = f.stack("scratch", I8, max(1, micro.kernel.scratch))
    target = _declared(f, micro, [PTR, PTR, I64, I64, PTR])
    f.call(target, [pointers, pointers, f.index(0), f.index(micro.kernel.tasks), scratch])
    _each_element(f, dims, extents, point.base, copy_out)


def _each_element(
    f: NestFrame, dims: Sequence[int], extents: Sequence[int], base: tuple[Index, ...],
    body: Callable[[Index, Sequence[Index]], None],
) -> None:
    """`body(position, indices)` for each element of a dense tile from `base` on, whose axes run along `dims`."""

    def inside(axis: int, at: tuple[Index, ...], position: Index) -> None:
        if axis == len(extents):
            body(position, at)
            return

        def step(i: Index, _: object) -> list[Any]:
            moved = (*at[: dims[axis]], f.iadd(at[dims[axis]], i), *at[dims[axis] + 1 :])
            inside(axis + 1, moved, f.iadd(f.imul(position, extents[axis]), i))
            return []

        f.loop(0, extents[axis], 1, step)

    inside(0, base, 0)


# -- modules of code -------------------------------------------------------------------------------


def code_module(kernel: str, micro: Microkernel) -> str:
    """LLVM IR that defines the microkernel for the kernel named `kernel`; all else that the code defines is internal.
    Raises OptionError for LLVM IR that is not valid, or does not define the symbol."""
    symbol = symbol_of(kernel, micro)
    if micro.language == "assembly":
        return _assembly_module(micro.code, micro.symbol, symbol)
    return _llvm_module(micro, symbol)


def _llvm_module(micro: Microkernel, symbol: str) -> str:
    try:
        module = llvm.parse_assembly(micro.code)
        module.verify()
    except RuntimeError as error:
        why = " ".join(str(error).split())
        raise OptionError(f"microkernel {micro.name}: its LLVM IR is not valid: {why}") from None
    defined = [function for function in module.functions if not function.is_declaration]
    names = [function.name for function in defined]
    if micro.symbol not in names:
        raise OptionError(f"microkernel {micro.name}: its LLVM IR does not define {micro.symbol}; it defines "
                          f"{', '.join(names) or 'nothing'}")
    for each in (*defined, *(each for each in module.global_variables if not each.is_declaration)):
        if each.name == micro.symbol:
            each.name, each.linkage = symbol, "external"
        else:
            each.linkage = "internal"
    return str(module)


def _assembly_module(code: str, symbol: str, renamed: str) -> str:
    """Assembly as a module of LLVM IR; its labels get names of the kernel, so that several may be in one module."""
    code = _DROPPED.sub("", code)
    labels = {label for label in _LABEL.findall(code) if not label[0].isdigit()}
    names = {label: f".L{renamed}{label.replace('.', '_')}" for label in labels} | {symbol: renamed}
    words = re.compile(r"(?<![\w.$])(" + "|".join(sorted(map(re.escape, names), key=len, reverse=True)) + r")(?![\w$])")
    lines = words.sub(lambda match: names[match[1]], code).splitlines()
    return "".join(f'module asm "{_escaped(line)}"\n' for line in lines if line.strip())


def _escaped(line: str) -> str:
    return "".join(c if " " <= c <= "~" and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode()) for c in line)
