"""Compiles a Triton program for Intel's GPUs, in a process that has Triton's Intel back end (triton-xpu 3.3).

    Triton text  →  SPIR-V  →  machine code of the named device (`native_code.py`), with the SPIR-V next to it

That back end is another build of the package `triton`, with an older interface than the one that other GPUs' programs
are compiled by. It builds a helper in C++ to name the GPU of the machine, which is replaced: devices come from a table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from motet.compiler.targets.gpu import GpuTarget, XpuDevice

_SUB_GROUP, WIDE_SUB_GROUP = 16, 32  # the first is what matrix engines work on
_WARP = 32  # threads, as forms count them
_WIDE_REGISTERS = 64  # bytes
_MOST_ITEMS = 512  # of a work-group that may have the large register file
# Numbers of SPIR-V.
_CAPABILITY, _EXTENSION, _MODE = 17, 10, 16
_KERNEL_ATTRIBUTES, _MAX_WORK_GROUP = 5892, 5893  # of SPV_INTEL_kernel_attributes


@dataclass(frozen=True)
class Spirv:
    """SPIR-V with the function `entry`; `warps` sub-groups of `sub_group` work-items make a work-group, with `shared`
    bytes of local memory. `text` is the program as LLVM IR."""

    code: bytes
    entry: str
    warps: int
    sub_group: int
    shared: int
    text: str


class _NoLiveDevice:
    @staticmethod
    def parse_device_arch(number: int) -> str:
        return ""


def use_table_of_devices() -> None:
    """Keep Triton from building its helper, whose only purpose is to name the machine's GPU."""
    from triton.backends import backends

    scope: dict[str, Any] = backends["intel"].compiler.__init__.__globals__
    scope["compile_module_from_src"] = lambda source, name: _NoLiveDevice


def sub_group_sizes(source: str, device: XpuDevice) -> list[int]:
    """The sizes of sub-groups that a program may have, the preferred one first: that which the user chose, else 16, and
    32 for a program that spills registers with 16. Matrix engines and 2-D block loads work on 16."""
    on_engine = device.matrix_engine and ("tl.dot(" in source or "tl.make_block_ptr(" in source)
    if on_engine or WIDE_SUB_GROUP not in device.sub_groups:
        return [_SUB_GROUP]
    return [device.sub_group] if device.sub_group else [_SUB_GROUP, WIDE_SUB_GROUP]


def sub_groups(source: str, warps: int, device: XpuDevice, size: int = _SUB_GROUP) -> int:
    """The sub-groups of `size` work-items of a program whose form has `warps` warps of NVIDIA's GPUs: as many
    work-items if `size` is 16, and more where a work-item has few registers, as programs with products need many. As a
    sub-group has one register file, there are as many sub-groups of 32, if a work-group can have them."""
    wanted = warps * _WARP // _SUB_GROUP * (_WIDE_REGISTERS // device.register_bytes)
    return min(wanted * (2 if "tl.dot(" in source else 1), min(device.work_group, _MOST_ITEMS) // size)


def compile_to_spirv(
    function: Any, signature: dict[str, str], aligned: int, target: GpuTarget, warps: int, size: int,
    stages: int,
) -> Spirv:
    """Compile `function`, whose first `aligned` arguments are pointers to memory aligned to 16 bytes, for `warps`
    sub-groups of `size` work-items. Raises Triton's exceptions."""
    from triton._C.libtriton import ir
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    device = target.xpu
    assert device is not None
    properties: Any = _properties(device)
    back_end: Any = backends["intel"].compiler(GPUTarget("xpu", properties, size))
    source: Any = ASTSource(
        function, signature=signature, constexprs={},
        attrs={(position,): [["tt.divisibility", 16]] for position in range(aligned)},
    )
    options: Any = back_end.parse_options({
        "num_warps": warps, "num_stages": stages, "threads_per_warp": size,
    })
    steps: dict[str, Any] = {}
    back_end.add_stages(steps, options)
    context: Any = ir.context()
    ir.load_dialects(context)
    back_end.load_dialects(context)
    codegen = back_end.get_codegen_implementation(options)
    module: Any = source.make_ir(options, codegen, back_end.get_module_map(), context)
    metadata: dict[str, Any] = {**vars(options), "target": None}
    text = ""
    for name in list(steps):
        module = steps[name](module, metadata)
        text = module if name == "llir" else text
    code = module if device.matrix_engine else without_attributes(module)
    return Spirv(
        code, str(metadata["name"]), int(metadata["num_warps"]), int(metadata["threads_per_warp"]),
        int(metadata["shared"]), text,
    )


def _properties(device: XpuDevice) -> dict[str, Any]:
    """A device as Triton describes it."""
    return {
        "architecture": 0, "name": device.device or "any", "sub_group_sizes": list(device.sub_groups),
        "has_fp64": device.fp64, "max_work_group_size": device.work_group,
        "max_num_sub_groups": device.work_group // device.sub_groups[0],
        "has_bfloat16_conversions": device.bfloat16,
        "has_subgroup_matrix_multiply_accumulate": device.matrix_engine,
        "has_subgroup_matrix_multiply_accumulate_tensor_float32": device.matrix_engine,
        "has_subgroup_2d_block_io": device.block_loads,
    }


def without_attributes(code: bytes) -> bytes:
    """SPIR-V without SPV_INTEL_kernel_attributes, which Intel's platform for processors refuses; it only states the
    size of work-groups."""
    kept = [word for instruction in _instructions(code) if not _is_attribute(instruction) for word in instruction]
    return code[:20] + struct.pack(f"<{len(kept)}I", *kept)


def _is_attribute(words: tuple[int, ...]) -> bool:
    operation = words[0] & 0xFFFF
    if operation == _EXTENSION:
        name = struct.pack(f"<{len(words) - 1}I", *words[1:]).rstrip(b"\0")
        return name == b"SPV_INTEL_kernel_attributes"
    return (operation == _CAPABILITY and words[1] == _KERNEL_ATTRIBUTES) or (
        operation == _MODE and words[2] == _MAX_WORK_GROUP
    )


def _instructions(code: bytes) -> Iterator[tuple[int, ...]]:
    words = struct.unpack(f"<{len(code) // 4}I", code)
    place = 5
    while place < len(words):
        count = max(words[place] >> 16, 1)
        yield words[place : place + count]
        place += count
