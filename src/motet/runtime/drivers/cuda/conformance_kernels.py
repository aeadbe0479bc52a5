"""The conformance kernels for NVIDIA GPUs: PTX, which the driver compiles for the GPU at hand.

Each program of a launch is one task, and its first thread does the work. Source: NVIDIA's PTX ISA, version 7.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from motet.runtime.conformance.kernels import EDGES, GATHERED

TARGET = "ptx70"
_FOLDER = f"executables/cuda/{TARGET}/"
_HEADER = ".version 7.0\n.target sm_70\n.address_size 64\n"
_REGISTERS = "".join(
    f"  .reg .{kind} %{name}<{count}>;\n"
    for kind, name, count in (("pred", "p", 8), ("b16", "h", 8), ("b32", "r", 32), ("f32", "f", 8), ("b64", "d", 32))
)


def cuda_units() -> Mapping[str, Mapping[str, bytes]]:
    """The files of each unit: the code, which is the same text for all kernels, and each kernel's description."""
    text = _HEADER + "".join(_entry(name, *kernel) for name, kernel in _KERNELS.items())
    files: dict[str, bytes] = {}
    for name, (buffers, sizes, _) in _KERNELS.items():
        files |= _files(name, buffers, sizes, text)
    missing = _HEADER + ".extern .func motet_conformance_missing;\n" + _entry(
        "unresolved", 0, (), "  call.uni motet_conformance_missing;\n"
    )
    return {"kernels": files, "helper": {}, "unresolved": _files("unresolved", 0, (), missing)}


def _files(name: str, buffers: int, sizes: tuple[str, ...], text: str) -> dict[str, bytes]:
    description = {
        "kernel": name, "entry": name, "warps": 1, "ctas": 1, "shared": 0, "scratch": 0, "registers": 0, "spills": 0,
        "buffers": buffers, "sizes": list(sizes), "waits": False,
    }
    return {f"{_FOLDER}{name}.ptx": text.encode(), f"{_FOLDER}{name}.json": json.dumps(description).encode()}


def _entry(name: str, buffers: int, sizes: tuple[str, ...], body: str) -> str:
    """A kernel that runs `body` for task %d0."""
    pointers = [f".param .u64 b{index}" for index in range(buffers)]
    numbers = [f".param .s{kind[1:]} s{index}" for index, kind in enumerate(sizes)]
    parameters = ", ".join([*pointers, *numbers, ".param .u64 scratch", ".param .u64 profile"])
    return f"""
.visible .entry {name}({parameters}) {{
{_REGISTERS}  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra done;
  mov.u32 %r1, %ctaid.x;
  cvt.u64.u32 %d0, %r1;
{body}done:
  ret;
}}
"""


def _element(address: str, parameter: str, bytes: int) -> str:
    """The address of a buffer's element for this task."""
    return f"  ld.param.u64 {address}, [{parameter}];\n  mad.lo.s64 {address}, %d0, {bytes}, {address};\n"


def _choose(register: str, first: str, parameters: int, kind: str) -> str:
    """Select the parameter with the number of the task."""
    return f"  ld.param.{kind} {register}, [{first}0];\n" + "".join(
        f"  ld.param.{kind} %d9, [{first}{index}];\n  setp.eq.u64 %p1, %d0, {index};\n"
        f"  selp.b64 {register}, %d9, {register}, %p1;\n"
        for index in range(1, parameters)
    )


_COUNT = _element("%d1", "b0", 4) + """
  ld.global.u32 %r2, [%d1];
  add.u32 %r2, %r2, 1;
  st.global.u32 [%d1], %r2;
"""
_AFFINE = _element("%d1", "b0", 4) + _element("%d2", "b1", 4) + """
  ld.param.u64 %d3, [s0];
  cvt.u32.u64 %r3, %d3;
  ld.global.u32 %r2, [%d1];
  mad.lo.u32 %r2, %r2, 2, %r3;
  st.global.u32 [%d2], %r2;
"""
_MULTIPLY_ADD = "".join(_element(f"%d{index + 1}", f"b{index}", 4) for index in range(4)) + """
  ld.global.f32 %f1, [%d1];
  ld.global.f32 %f2, [%d2];
  ld.global.f32 %f3, [%d3];
  mul.rn.f32 %f1, %f1, %f2;
  add.rn.f32 %f1, %f1, %f3;
  st.global.f32 [%d4], %f1;
"""
_SHOW_SIZES = _element("%d1", "b0", 8) + _choose("%d2", "s", len(EDGES), "s64") + "  st.global.s64 [%d1], %d2;\n"
# Buffer 1 + task: the task is incremented for the selection and restored for the result.
_GATHER = (
    "  add.u64 %d0, %d0, 1;\n" + _choose("%d2", "b", GATHERED + 1, "u64") + "  sub.u64 %d0, %d0, 1;\n"
    + _element("%d1", "b0", 1) + "  ld.global.u8 %h1, [%d2];\n  st.global.u8 [%d1], %h1;\n"
)
# A program's scratch is at its number times the scratch size, rounded up to 128.
_USE_SCRATCH = _element("%d1", "b0", 8) + """
  ld.param.s64 %d2, [s0];
  ld.param.u64 %d3, [scratch];
  shl.b64 %d4, %d2, 3;
  add.s64 %d4, %d4, 127;
  and.b64 %d4, %d4, -128;
  mad.lo.s64 %d3, %d0, %d4, %d3;
  mov.u64 %d5, 0;
fill:
  setp.ge.s64 %p1, %d5, %d2;
  @%p1 bra filled;
  mad.lo.s64 %d6, %d5, 8, %d3;
  add.s64 %d7, %d0, %d5;
  st.volatile.global.s64 [%d6], %d7;
  add.s64 %d5, %d5, 1;
  bra fill;
filled:
  mov.u64 %d5, 0;
  mov.u64 %d8, 0;
sum:
  setp.ge.s64 %p1, %d5, %d2;
  @%p1 bra summed;
  mad.lo.s64 %d6, %d5, 8, %d3;
  ld.volatile.global.s64 %d7, [%d6];
  add.s64 %d8, %d8, %d7;
  add.s64 %d5, %d5, 1;
  bra sum;
summed:
  and.b64 %d3, %d3, 63;
  mad.lo.s64 %d8, %d8, 64, %d3;
  st.global.s64 [%d1], %d8;
"""
_SPIN = _element("%d1", "b0", 8) + """
  ld.param.s64 %d2, [s0];
  mov.u64 %d3, 0;
  st.volatile.global.s64 [%d1], %d3;
again:
  ld.volatile.global.s64 %d3, [%d1];
  setp.ge.s64 %p1, %d3, %d2;
  @%p1 bra done;
  add.s64 %d3, %d3, 1;
  st.volatile.global.s64 [%d1], %d3;
  bra again;
"""
_MOVE = """
  ld.param.u64 %d1, [b0];
  ld.param.u64 %d2, [b1];
  ld.param.u64 %d3, [b2];
  ld.param.s64 %d4, [s0];
  ld.param.s64 %d5, [s1];
  ld.param.u64 %d6, [s2];
  cvt.u16.u64 %h2, %d6;
  mov.u64 %d7, 0;
copy:
  setp.ge.s64 %p1, %d7, %d4;
  @%p1 bra copied;
  add.s64 %d8, %d1, %d7;
  ld.global.u8 %h1, [%d8];
  add.s64 %d8, %d2, %d7;
  st.global.u8 [%d8], %h1;
  add.s64 %d7, %d7, 1;
  bra copy;
copied:
  mov.u64 %d7, 0;
set:
  setp.ge.s64 %p1, %d7, %d5;
  @%p1 bra done;
  add.s64 %d8, %d3, %d7;
  st.global.u8 [%d8], %h2;
  add.s64 %d7, %d7, 1;
  bra set;
"""
_CALL_HELPER = _element("%d1", "b0", 8) + """
  mul.lo.s64 %d2, %d0, %d0;
  mov.u64 %d3, 7;
  sub.s64 %d2, %d3, %d2;
  st.global.s64 [%d1], %d2;
"""
_WILD = f"""
  ld.param.u64 %d1, [b0];
  add.u64 %d1, %d1, {1 << 44};
  mov.u32 %r2, 1;
  st.volatile.global.u32 [%d1], %r2;
"""
_ENDLESS = """
  ld.param.u64 %d1, [b0];
again:
  ld.volatile.global.u32 %r2, [%d1];
  add.u32 %r2, %r2, 1;
  st.volatile.global.u32 [%d1], %r2;
  bra again;
"""

# The number of buffers, the sizes, and the code of each kernel.
_KERNELS: Mapping[str, tuple[int, tuple[str, ...], str]] = {
    "count": (1, (), _COUNT),
    "affine": (2, ("i64",), _AFFINE),
    "multiply_add": (4, (), _MULTIPLY_ADD),
    "show_sizes": (1, ("i64",) * len(EDGES), _SHOW_SIZES),
    "gather": (GATHERED + 1, (), _GATHER),
    "use_scratch": (1, ("i64",), _USE_SCRATCH),
    "spin": (1, ("i64",), _SPIN),
    "move": (3, ("i64",) * 3, _MOVE),
    "call_helper": (1, (), _CALL_HELPER),
    "trap": (1, (), "  trap;\n"),
    "wild": (1, (), _WILD),
    "endless": (1, (), _ENDLESS),
}
