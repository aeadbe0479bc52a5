"""Kernels for the checks, in LLVM IR, compiled for the device's family if Motet's compiler is installed.

A driver whose devices need other kernels provides them itself (`conformance_kernels`).

The compiler is used only when a check needs code. A family has code if it is Motet's own or described by an entry point
of the group `motet.targets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.artifact.schema import Variant
from motet.errors import DeviceError
from motet.runtime.device import Device, load_driver

# The sizes with which `show_sizes` is launched, and the number of buffers from which `gather` reads a byte each.
EDGES = (0, 1, -1, 1 << 32, (1 << 63) - 1, -(1 << 63), 123_456_789_012_345)
GATHERED = 400

_SIGNATURE = "(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch)"


@dataclass(frozen=True)
class CheckKernels:
    """The compiled files of each unit, by name, and their target."""

    target: str
    triple: str
    features: tuple[str, ...]
    units: Mapping[str, Mapping[str, bytes]]

    def files(self, *units: str) -> tuple[list[bytes], list[str]]:
        """The contents and names of all files of some units; `many` has kernels of hundreds of buffers, where a device
        may refuse their whole file."""
        files = [(content, name) for unit in units for name, content in self.units.get(unit, {}).items()]
        return [content for content, _ in files], [name for _, name in files]


def compile_kernels(family: str, device: Device) -> CheckKernels | str:
    """The objects for the first target of `family` without an obstacle on `device`, or why there are none."""
    written = getattr(load_driver(family), "conformance_kernels", None)
    if written is not None:
        target, units = written()
        reason = device.obstacle(Variant(family, target, "", [target], [], {}))
        return f"{target}: {reason}" if reason is not None else CheckKernels(target, "", (target,), units)
    try:
        from motet.compiler.machine_code import machine_code
    except ImportError as error:
        return f"Motet's compiler is not installed ({error}); pip install 'motet[compile]'"
    made = machine_code(family, UNITS, device.obstacle)
    if isinstance(made, str):
        return made
    units = {unit: {f"{unit}.o": content} for unit, content in made.objects.items()}
    found = CheckKernels(made.name, made.target.triple, made.target.requires, units)
    if not made.is_own:  # its code generator may make other files than objects for processors
        try:
            device.load(*found.files("kernels", "helper"))
        except DeviceError as error:
            return f"it does not load objects for {found.triple}, and its driver has no conformance_kernels: {error}"
    return found


def _pointer(name: str, index: int) -> str:
    return f"""  %{name}.slot = getelementptr ptr, ptr %buffers, i64 {index}
  %{name} = load ptr, ptr %{name}.slot
"""


def _size(name: str, index: int) -> str:
    return f"""  %{name}.slot = getelementptr i64, ptr %sizes, i64 {index}
  %{name} = load i64, ptr %{name}.slot
"""


def _per_task(name: str, before: str, body: str) -> str:
    """A kernel that runs `body` for each task %i."""
    return f"""
define void @{name}{_SIGNATURE} {{
entry:
{before}  br label %test
test:
  %i = phi i64 [%begin, %entry], [%next, %after]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %task, label %done
task:
{body}  br label %after
after:
  %next = add i64 %i, 1
  br label %test
done:
  ret void
}}
"""


# out[task] += 1
_COUNT = _per_task("count", _pointer("out", 0), """
  %place = getelementptr i32, ptr %out, i64 %i
  %old = load i32, ptr %place, align 1
  %new = add i32 %old, 1
  store i32 %new, ptr %place, align 1
""")

# y[task] = 2 x[task] + step, modulo 2**32
_AFFINE = _per_task("affine", _pointer("x", 0) + _pointer("y", 1) + _size("step", 0), """
  %from = getelementptr i32, ptr %x, i64 %i
  %to = getelementptr i32, ptr %y, i64 %i
  %value = load i32, ptr %from, align 1
  %twice = shl i32 %value, 1
  %narrow = trunc i64 %step to i32
  %sum = add i32 %twice, %narrow
  store i32 %sum, ptr %to, align 1
""")

# y[task] = a[task] * x[task] + b[task], rounded twice
_MULTIPLY_ADD = _per_task(
    "multiply_add", _pointer("a", 0) + _pointer("x", 1) + _pointer("b", 2) + _pointer("y", 3), """
  %pa = getelementptr float, ptr %a, i64 %i
  %px = getelementptr float, ptr %x, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %py = getelementptr float, ptr %y, i64 %i
  %va = load float, ptr %pa, align 1
  %vx = load float, ptr %px, align 1
  %vb = load float, ptr %pb, align 1
  %product = fmul float %va, %vx
  %sum = fadd float %product, %vb
  store float %sum, ptr %py, align 1
""")

# out[task] = sizes[task]
_SHOW_SIZES = _per_task("show_sizes", _pointer("out", 0), """
  %from = getelementptr i64, ptr %sizes, i64 %i
  %to = getelementptr i64, ptr %out, i64 %i
  %value = load i64, ptr %from
  store i64 %value, ptr %to, align 1
""")

# out[task] = first byte of buffer 1 + task
_GATHER = _per_task("gather", _pointer("out", 0), """
  %number = add i64 %i, 1
  %slot = getelementptr ptr, ptr %buffers, i64 %number
  %from = load ptr, ptr %slot
  %byte = load i8, ptr %from
  %to = getelementptr i8, ptr %out, i64 %i
  store i8 %byte, ptr %to
""")

# Fills sizes[0] words of scratch with task + index, then: out[task] = their sum * 64 + the scratch's misalignment
_USE_SCRATCH = _per_task("use_scratch", _pointer("out", 0) + _size("words", 0), """
  br label %filltest
filltest:
  %j = phi i64 [0, %task], [%j.next, %fill]
  %filling = icmp slt i64 %j, %words
  br i1 %filling, label %fill, label %sumtest
fill:
  %word = getelementptr i64, ptr %scratch, i64 %j
  %value = add i64 %i, %j
  store volatile i64 %value, ptr %word
  %j.next = add i64 %j, 1
  br label %filltest
sumtest:
  %k = phi i64 [0, %filltest], [%k.next, %sum]
  %total = phi i64 [0, %filltest], [%total.next, %sum]
  %summing = icmp slt i64 %k, %words
  br i1 %summing, label %sum, label %last
sum:
  %term.slot = getelementptr i64, ptr %scratch, i64 %k
  %term = load volatile i64, ptr %term.slot
  %total.next = add i64 %total, %term
  %k.next = add i64 %k, 1
  br label %sumtest
last:
  %scaled = mul i64 %total, 64
  %address = ptrtoint ptr %scratch to i64
  %misaligned = and i64 %address, 63
  %result = add i64 %scaled, %misaligned
  %place = getelementptr i64, ptr %out, i64 %i
  store i64 %result, ptr %place, align 1
""")

# Counts to sizes[0], then: out[task] = that
_SPIN = _per_task("spin", _pointer("out", 0) + _size("rounds", 0) + "  %counter = alloca i64\n", """
  store volatile i64 0, ptr %counter
  br label %spintest
spintest:
  %now = load volatile i64, ptr %counter
  %spinning = icmp slt i64 %now, %rounds
  br i1 %spinning, label %spin, label %last
spin:
  %then = add i64 %now, 1
  store volatile i64 %then, ptr %counter
  br label %spintest
last:
  %place = getelementptr i64, ptr %out, i64 %i
  store i64 %now, ptr %place, align 1
""")

# All of buffer 0 to buffer 1, then sizes[1] bytes of buffer 2 to sizes[2]: calls of memcpy and memset
_MOVE = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @move{_SIGNATURE} {{
{_pointer("from", 0)}{_pointer("to", 1)}{_pointer("other", 2)}{_size("count", 0)}{_size("length", 1)}{_size("byte", 2)}
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %count, i1 false)
  %narrow = trunc i64 %byte to i8
  call void @llvm.memset.p0.i64(ptr %other, i8 %narrow, i64 %length, i1 false)
  ret void
}}
"""

# out[task] = helper(task), which another object defines
_CALL_HELPER = "declare i64 @motet_conformance_helper(i64)\n" + _per_task("call_helper", _pointer("out", 0), """
  %value = call i64 @motet_conformance_helper(i64 %i)
  %place = getelementptr i64, ptr %out, i64 %i
  store i64 %value, ptr %place, align 1
""")

_TRAP = f"""
declare void @llvm.trap()
define void @trap{_SIGNATURE} {{
  call void @llvm.trap()
  ret void
}}
"""

# Stores 16 TiB behind its buffer, beyond the memory of any device.
_WILD = f"""
define void @wild{_SIGNATURE} {{
{_pointer("out", 0)}
  %far = getelementptr i8, ptr %out, i64 {(1 << 44) + (1 << 26)}
  store volatile i32 1, ptr %far
  ret void
}}
"""

_ENDLESS = f"""
define void @endless{_SIGNATURE} {{
entry:
{_pointer("out", 0)}  br label %again
again:
  %now = load volatile i32, ptr %out
  %then = add i32 %now, 1
  store volatile i32 %then, ptr %out
  br label %again
}}
"""

_HELPER = """
define i64 @motet_conformance_helper(i64 %x) {
  %square = mul i64 %x, %x
  %result = sub i64 7, %square
  ret i64 %result
}
"""

_UNRESOLVED = f"""
declare void @motet_conformance_missing()
define void @unresolved{_SIGNATURE} {{
  call void @motet_conformance_missing()
  ret void
}}
"""

UNITS = {
    "kernels": "".join([
        _COUNT, _AFFINE, _MULTIPLY_ADD, _SHOW_SIZES, _GATHER, _USE_SCRATCH, _SPIN, _MOVE, _CALL_HELPER, _TRAP, _WILD,
        _ENDLESS,
    ]),
    "helper": _HELPER,
    "unresolved": _UNRESOLVED,
}
KERNELS = (
    "count", "affine", "multiply_add", "show_sizes", "gather", "use_scratch", "spin", "move", "call_helper", "trap",
    "wild", "endless",
)
