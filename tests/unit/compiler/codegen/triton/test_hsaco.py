"""What code objects for AMD's GPUs say, against LLVM's text of the same code."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.compiler.codegen.triton import attention_texts, building
from tests.unit.compiler.codegen.triton.products import ProductText
from tests.unit.compiler.codegen.triton.test_objects import build
from tests.unit.compiler.codegen.triton.texts import nest, softmax, tensor

from motet.artifact.gpu_limits import gpu_limits
from motet.compiler.codegen.triton.compile import hsaco
from motet.compiler.codegen.triton.compile.hsaco import read_resources
from motet.compiler.codegen.triton.compile.objects import compile_programs
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget
from motet.compiler.targets.hip import HIP

pytest.importorskip("triton")

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, y):
    at = tl.arange(0, {size})
    a = tl.load(x + at[:, None] * {size} + at[None, :])
    b = tl.load(y + at[:, None] * {size} + at[None, :])
    tl.store(y + at[:, None] * {size} + at[None, :], tl.dot(a, b))
"""


@pytest.mark.parametrize("size", [32, pytest.param(256, marks=pytest.mark.slow)])
def test_registers_and_spills_are_those_of_the_assembly(tmp_path: Path, size: int) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from motet.compiler.codegen.triton.compile.worker import load

    function = load(SOURCE.format(size=size), "kernel", tmp_path / "kernel.py")
    source = ASTSource(function, {"x": "*fp32", "y": "*fp32"}, {})
    made = triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options={"num_warps": 4})
    found = read_resources(made.asm["hsaco"], "kernel")
    text = made.asm["amdgcn"]
    counts = {key: int(re.search(rf"\.{key}:\s+(\d+)", text)[1]) for key in  # pyright: ignore
              ("vgpr_count", "agpr_count", "private_segment_fixed_size")}
    assert found.registers == counts["vgpr_count"] + counts["agpr_count"] > 0
    assert found.spills == counts["private_segment_fixed_size"]
    assert (found.spills > 0) == (size == 256)


def test_what_is_no_code_object() -> None:
    with pytest.raises(ValueError, match="not an ELF file"):
        read_resources(b"MZ", "kernel")


# The field EF_AMDGPU_MACH of a code object's flags, and the instructions of matrix products of f16. Source: LLVM's
# user guide for the AMDGPU back end, "ELF Header", and its lists of instructions by processor.
MACHINES = {
    "gfx90a": (0x3F, "v_mfma_f32"), "gfx942": (0x4C, "v_mfma_f32"), "gfx950": (0x4F, "v_mfma_f32"),
    "gfx1100": (0x41, "v_wmma_f32_16x16x16_f16"), "gfx1201": (0x4E, "v_wmma_f32_16x16x16_f16"),
}


def kernels(code: bytes) -> list[dict[str, Any]]:
    return [kernel for note in hsaco._metadata(code) for kernel in msgspec.msgpack.decode(note)["amdhsa.kernels"]]


def check_code_object(code: bytes, launch: dict[str, Any], target: str) -> None:
    """ELF header, wavefront and work-group are those of the target and the launch."""
    kind, machine = struct.unpack_from("<HH", code, 16)
    (flags,) = struct.unpack_from("<I", code, 0x30)
    assert (kind, machine, flags & 0xFF) == (3, 224, MACHINES[target][0])  # a shared object for AMDGPU
    (kernel,) = kernels(code)
    wavefront = 32 if target.startswith("gfx1") else 64
    assert kernel[".name"] == launch["entry"] and kernel[".wavefront_size"] == wavefront
    assert kernel[".max_flat_workgroup_size"] == launch["warps"] * wavefront
    limits = gpu_limits("hip", target)
    assert limits is not None and limits.warp == wavefront
    assert kernel[".max_flat_workgroup_size"] <= limits.most_threads(launch["registers"])


def test_targets_are_the_table_of_machines() -> None:
    assert HIP.targets.keys() == MACHINES.keys()


@pytest.mark.parametrize("name", MACHINES)
def test_products_use_the_matrix_engine(name: str) -> None:
    target = resolve_target(f"hip:{name}")
    assert isinstance(target, GpuTarget)
    (program,) = building.generate(ProductText(64, 64, 64, "f16").text, target).programs.values()
    ((made,),) = compile_programs([program], target, 1)
    launch = {"entry": made.entry, "warps": made.warps, "registers": made.registers}
    check_code_object(made.code, launch, name)
    assert MACHINES[name][1] in made.assembly and made.spills == 0 and made.shared <= target.shared


@pytest.mark.slow
@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_every_class_has_a_code_object(target: str, dtype: str) -> None:
    wide, narrow = tensor((70, 517), dtype), tensor((517,), dtype)
    texts = [
        ProductText(65, 96, 129, dtype).text, softmax(33, 127, dtype),
        attention_texts.text(attention_texts.Form(1, 2, 1, 64, 64, 64, 64, dtype)),
        nest([(wide, "i, j")], [(wide, "i, j", "")], "pp", [f"%z = math.exp %x0 : {dtype}"], ["%z"]),
        nest([(wide, "i, j")], [(narrow, "j", "0.0")], "rp", [f"%s = arith.addf %y0, %x0 : {dtype}"], ["%s"]),
    ]
    for text in texts:
        built = build(text, [f"hip:{target}"])
        (variant,) = built.manifest.variants
        for name in variant.objects:
            if name.endswith(".hsaco"):
                launch = msgspec.json.decode(built.members[f"{name.removesuffix('.hsaco')}.json"])
                check_code_object(built.members[name], launch, target)


def test_the_largest_block_is_what_the_register_files_hold() -> None:
    """Wavefronts of a SIMD by registers, as LLVM's `getNumWavesPerEUWithNumVGPRs` has them."""
    rdna, cdna = gpu_limits("hip", "gfx1100"), gpu_limits("hip", "gfx90a")
    assert rdna is not None and cdna is not None and gpu_limits("host", "x86-64-v3") is None
    assert [rdna.most_threads(count) for count in (0, 96, 192, 216, 256)] == [1024, 1024, 1024, 896, 640]
    assert [cdna.most_threads(count) for count in (128, 129, 256, 264, 512)] == [1024, 768, 512, 256, 256]
