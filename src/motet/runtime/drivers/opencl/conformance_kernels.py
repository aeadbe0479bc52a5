"""The conformance kernels in OpenCL C, which every platform compiles. See `program.py` for their parameters."""

from __future__ import annotations

from collections.abc import Mapping

from motet.runtime.conformance.kernels import EDGES, GATHERED

_TASKS = """
#pragma OPENCL FP_CONTRACT OFF
#define TASKS for (long n = get_global_size(0), w = get_global_id(0), i = w * tasks / n; i < (w + 1) * tasks / n; i++)
"""


def opencl_units() -> Mapping[str, Mapping[str, bytes]]:
    """The files of each unit."""
    text = _TASKS + "".join(_kernel(name, *kernel) for name, kernel in _KERNELS.items())
    many = _TASKS + _kernel("gather", GATHERED + 1, 0, _GATHER)
    missing = _TASKS + "void motet_conformance_missing(void);" + _kernel(
        "unresolved", 0, 0, "motet_conformance_missing();"
    )
    return {
        "kernels": {"kernels.cl": text.encode()}, "helper": {}, "many": {"gather.cl": many.encode()},
        "unresolved": {"unresolved.cl": missing.encode()},
    }


def _kernel(name: str, buffers: int, sizes: int, body: str) -> str:
    parameters = [f"global uchar *b{index}" for index in range(buffers)]
    parameters += [f"long s{index}" for index in range(sizes)]
    parameters += ["long tasks", "global uchar *scratch", "long stride"]
    return f"""
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void {name}__{buffers}b{sizes}s({", ".join(parameters)}) {{
  TASKS {{ {body} }}
}}
"""


_AFFINE = "((global uint *)b1)[i] = 2 * ((global uint *)b0)[i] + (uint)s0;"
_MULTIPLY_ADD = """
    float product = ((global float *)b0)[i] * ((global float *)b1)[i];
    ((global float *)b3)[i] = product + ((global float *)b2)[i];
"""
_SHOW_SIZES = f"""
    long all[] = {{ {", ".join(f"s{index}" for index in range(len(EDGES)))} }};
    ((global long *)b0)[i] = all[i];
"""
_GATHER = f"""
    global uchar *all[] = {{ {", ".join(f"b{index + 1}" for index in range(GATHERED))} }};
    b0[i] = *all[i];
"""
_USE_SCRATCH = """
    volatile global long *own = (volatile global long *)(scratch + w * stride);
    long total = 0;
    for (long j = 0; j < s0; j++) own[j] = i + j;
    for (long j = 0; j < s0; j++) total += own[j];
    ((global long *)b0)[i] = total * 64 + ((ulong)own & 63);
"""
_SPIN = """
    volatile long count = 0;
    while (count < s0) count++;
    ((global long *)b0)[i] = count;
"""
_MOVE = """
    for (long j = 0; j < s0; j++) b1[j] = b0[j];
    for (long j = 0; j < s1; j++) b2[j] = (uchar)s2;
"""

# The number of buffers and of sizes, and the code of each kernel. Faults cannot be contained, so that the kernels that
# cause them do nothing.
_KERNELS: Mapping[str, tuple[int, int, str]] = {
    "count": (1, 0, "((global uint *)b0)[i] += 1;"),
    "affine": (2, 1, _AFFINE),
    "multiply_add": (4, 0, _MULTIPLY_ADD),
    "show_sizes": (1, len(EDGES), _SHOW_SIZES),
    "use_scratch": (1, 1, _USE_SCRATCH),
    "spin": (1, 1, _SPIN),
    "move": (3, 3, _MOVE),
    "call_helper": (1, 0, "((global long *)b0)[i] = 7 - i * i;"),
    "trap": (1, 0, ""),
    "wild": (1, 0, ""),
    "endless": (1, 0, ""),
}
