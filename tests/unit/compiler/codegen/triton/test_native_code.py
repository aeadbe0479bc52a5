"""Machine code for Intel's GPUs: registers and spills, when the large register file is taken, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from motet.artifact.launch import Native, PassedOver
from motet.compiler.codegen.triton.compile import iga, native_code, ocloc, zebin
from motet.compiler.codegen.triton.compile.native_code import SPILL_THRESHOLD, OutOfResources, make_native
from motet.compiler.codegen.triton.compile.ocloc import CompilerFailure, OfflineBuild
from motet.compiler.codegen.triton.compile.worker import Made, less_spilling
from motet.compiler.codegen.triton.compile.xpu import sub_group_sizes, sub_groups, without_attributes
from motet.compiler.targets.gpu import GpuTarget, XpuDevice
from motet.compiler.targets.intel import INTEL

LARGE = native_code.FLAGS["large"]
# Private arrays, indexed by what is only known when it runs: scratch memory without a spill; and many live values.
_SPILLS = b"""
kernel void many(global float *p, int n) {
  float x[200];
  #pragma unroll
  for (int i = 0; i < 200; i++) x[i] = p[i * 1024 + get_global_id(0)];
  for (int k = 0; k < n; k++) {
    #pragma unroll
    for (int i = 0; i < 200; i++) x[i] = x[i] * x[(i + 7) % 200] + p[k];
  }
  #pragma unroll
  for (int i = 0; i < 200; i++) p[i * 1024 + get_global_id(0)] = x[i];
}
kernel void few(global int *p) { p[get_global_id(0)] += 1; }
"""


def device(name: str, **changes: object) -> XpuDevice:
    target = INTEL.targets[name]
    assert isinstance(target, GpuTarget) and target.xpu is not None
    return replace(target.xpu, **changes)  # type: ignore[arg-type]


class Compiler:
    """Stands for the offline compiler: the registers that a kernel spills, by flags."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **spilled: int) -> None:
        self.work: dict[int, iga.ThreadWork] = {}  # by registers
        self.flags: list[str] = []
        self._spilled = spilled
        monkeypatch.setattr(ocloc, "compile_spirv", self.compile)
        monkeypatch.setattr(ocloc, "version", lambda: "a compiler")
        monkeypatch.setattr(zebin, "read_kernel", lambda code, kernel: code)
        monkeypatch.setattr(zebin, "section", lambda code, name: str(code.registers).encode())
        monkeypatch.setattr(iga, "read_work", lambda code, isa, register_bytes: self.work.get(int(code)))

    def compile(self, spirv: bytes, name: str, flags: str) -> OfflineBuild:
        self.flags.append(flags)
        found = re.search(r"\d+", flags)
        registers = int(found[0]) if found and "dishonoured" not in self._spilled else 128
        facts = zebin.KernelFacts(registers, 16, 0, None, matrix_engine=False)
        spilled = self._spilled[{128: "default", 256: "large", 512: "huge"}[registers]]
        return OfflineBuild(facts, {"k": spilled} if spilled else {})  # type: ignore[arg-type]


def test_unknown_instructions_without_spills_are_no_reason_to_compile_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch, default=0)
    _, native = make_native(b"", "k", device("pvc"), 512)
    assert compiler.flags == [""] and native.retries == [] and native.spilled_registers == 0


def test_spills_have_units_and_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler(monkeypatch, default=SPILL_THRESHOLD, large=SPILL_THRESHOLD)
    _, native = make_native(b"", "k", device("pvc"), 512)
    assert (native.spilled_registers, native.spilled_bytes) == (SPILL_THRESHOLD, SPILL_THRESHOLD * 64)
    assert native.max_work_group == 1024 and native.sources["spilled_registers"] == "compiler log"


def test_the_large_register_file_is_taken_where_it_spills_less(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch, default=90, large=3)
    _, native = make_native(b"", "k", device("pvc"), 512)
    assert compiler.flags == ["", LARGE] and native.flags == LARGE
    assert (native.registers, native.spilled_registers, native.max_work_group) == (256, 3, 512)
    (retry,) = native.retries
    assert retry.taken and "3 registers instead of 90" in retry.reason


@pytest.mark.parametrize(("spilled", "waits", "cycles", "taken"), [
    (0, 100, ((2500 + 128 * 337) // 8, (2500 + 128 * 100) // 4), True),  # more messages under way
    (0, 200, ((2500 + 128 * 337) // 8, (2500 + 128 * 200) // 4), False),  # half as many threads
    (20, 0, ((2500 + 128 * 337) // 8, 8 * 400), True),  # what the cache serves
])
def test_the_fastest_estimate_is_taken(
    monkeypatch: pytest.MonkeyPatch, spilled: int, waits: int, cycles: tuple[int, int], taken: bool
) -> None:
    compiler = Compiler(monkeypatch, default=spilled, large=0)
    compiler.work = {128: iga.ThreadWork(2500, 400, 337, 64), 256: iga.ThreadWork(2500, 400, waits, 64)}
    _, native = make_native(b"", "k", device("pvc"), 512)
    (retry,) = native.retries
    assert retry.taken == taken and native.registers == (256 if taken else 128)
    assert f"an estimated {cycles[1]} cycles instead of {cycles[0]}" in retry.reason


def test_loops_that_are_unrolled_are_compared_by_what_they_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch, default=0, large=0)
    compiler.work = {128: iga.ThreadWork(2000, 200, 200, 64), 256: iga.ThreadWork(6000, 600, 225, 3 * 64)}
    _, native = make_native(b"", "k", device("pvc"), 512)
    assert native.registers == 256
    assert f"an estimated {(6000 + 128 * 225) // 4 // 3} cycles instead of 3450" in native.retries[0].reason


def test_every_register_file_of_a_device_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch, default=90, large=9, huge=0)
    newer = device("pvc", register_files=(128, 256, 512))
    _, native = make_native(b"", "k", newer, 256)
    assert [flags.partition("intel-")[2] for flags in compiler.flags] == [
        "", "256-GRF-per-thread", "512-GRF-per-thread",
    ]
    assert [retry.taken for retry in native.retries] == [True, True]
    assert (native.registers, native.max_work_group) == (512, 256)


def test_it_is_not_taken_where_it_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler(monkeypatch, default=90, large=90)
    _, native = make_native(b"", "k", device("pvc"), 512)
    assert native.flags == "" and [retry.taken for retry in native.retries] == [False]
    Compiler(monkeypatch, default=90, dishonoured=1)
    _, native = make_native(b"", "k", device("pvc"), 512)
    assert "does not honour" in native.retries[0].reason


def test_a_kernel_stays_launchable(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch, default=90, large=0)
    _, native = make_native(b"", "k", device("pvc"), 1024)
    assert compiler.flags == [""] and native.flags == "" and "at most 512" in native.retries[0].reason
    _, native = make_native(b"", "k", device("tgllp"), 512)  # which has no larger file
    assert native.retries == []


@pytest.mark.parametrize(("mode", "flags"), [("large", LARGE), ("small", native_code.FLAGS["small"])])
def test_a_mode_that_the_user_chose_is_kept(monkeypatch: pytest.MonkeyPatch, mode: str, flags: str) -> None:
    compiler = Compiler(monkeypatch, default=90, large=90)
    _, native = make_native(b"", "k", device("pvc", registers=mode), 256)
    assert compiler.flags == [flags] and native.retries == []


def test_a_work_group_that_does_not_fit_is_no_failure_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler(monkeypatch, default=0, large=0)
    with pytest.raises(OutOfResources, match="work-groups of 1024 work-items; pvc has at most 512 with 256 registers"):
        make_native(b"", "k", device("pvc", registers="large"), 1024)


def test_more_work_items_where_each_has_fewer_registers() -> None:
    product, plain = "tl.dot(a, b)", "tl.load(a)"
    assert [sub_groups(plain, 4, device(name)) for name in ("pvc", "dg2")] == [8, 16]
    assert [sub_groups(product, 4, device(name)) for name in ("pvc", "dg2")] == [16, 32]
    assert sub_groups(product, 16, device("tgllp")) == 32  # of 16 work-items, 512


def test_sub_groups_of_32_have_work_groups_that_fit() -> None:
    assert [sub_groups("tl.load(a)", 4, device(name), 32) for name in ("pvc", "tgllp")] == [8, 16]
    assert [sub_groups("tl.dot(a, b)", 8, device(name), 32) for name in ("dg2", "tgllp")] == [16, 16]


def test_matrix_engines_work_on_sub_groups_of_16() -> None:
    product, plain = "tl.dot(a, b)", "tl.load(a)"
    assert [sub_group_sizes(plain, device(name)) for name in ("pvc", "dg2", "tgllp")] == [[16, 32]] * 3
    assert [sub_group_sizes(product, device(name)) for name in ("pvc", "dg2")] == [[16], [16, 32]]
    chosen = [sub_group_sizes(each, device("pvc", sub_group=size)) for each in (plain, product) for size in (16, 32)]
    assert chosen == [[16], [32], [16], [16]]
    assert sub_group_sizes(plain, device("pvc", sub_groups=(16,), sub_group=32)) == [16]


def made(sub_group: int, warps: int, spilled: int, error: str = "") -> Made:
    native = Native("tgllp", "a compiler", "", 128, 32, spilled // 32, spilled, 512, False, {})
    return Made(0, warps, b"", spills=spilled, sub_group=sub_group, native=native, error=error)


def test_the_size_of_sub_groups_is_the_one_whose_work_group_spills_less() -> None:
    narrow = made(16, 32, 1024)
    taken = less_spilling(narrow, made(32, 16, 992))
    assert taken.sub_group == 32 and taken.native is not None
    assert taken.native.passed_over == PassedOver(16, 32768, "its work-group spills 32768 bytes, not fewer than 15872")
    kept = less_spilling(narrow, made(32, 16, 2048))  # as many
    assert kept.sub_group == 16 and kept.native is not None and kept.native.passed_over is not None
    assert (kept.native.passed_over.sub_group, kept.native.passed_over.spilled_bytes) == (32, 32768)
    failed = less_spilling(narrow, Made(error="out of resources"))
    assert failed.native is not None and failed.native.passed_over == PassedOver(32, -1, "out of resources")


def test_only_the_unknown_attributes_are_dropped() -> None:
    def words(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(4, "little") for number in numbers)

    header, capability = words(0x07230203, 0x10400, 0, 9, 0), words(2 << 16 | 17, 6)
    name = b"SPV_INTEL_kernel_attributes\0"
    extension = words((1 + len(name) // 4) << 16 | 10) + name
    mode = words(6 << 16 | 16, 1, 5893, 64, 1, 1)
    kept = words(4 << 16 | 16, 1, 35, 16)  # the size of sub-groups
    assert without_attributes(header + capability + words(2 << 16 | 17, 5892) + extension + mode + kept) == (
        header + capability + kept
    )


# -- the compiler itself ---------------------------------------------------------------------------


@pytest.mark.usefixtures("offline_compiler")
def test_spills_are_read_from_the_log_and_registers_from_the_binary() -> None:
    built = ocloc.compile_source(_SPILLS, "tgllp", "")
    assert built.spilled["many"] > SPILL_THRESHOLD and "few" not in built.spilled
    many, few = (zebin.read_kernel(built.zebin, kernel) for kernel in ("many", "few"))
    assert many.registers == few.registers == 128 and many.scratch > 0 == few.scratch
    large = ocloc.compile_source(_SPILLS, "pvc", LARGE)
    assert zebin.read_kernel(large.zebin, "many").registers == 256
    with pytest.raises(ValueError, match="without the kernel other"):
        zebin.read_kernel(built.zebin, "other")


@pytest.mark.usefixtures("offline_compiler")
@pytest.mark.parametrize("name", ["pvc", "dg2", "tgllp"])
def test_instructions_in_loops_count_as_often_as_they_may_run(name: str) -> None:
    """A kernel of one load and one store, and the same in a loop: 16 times as many, of few others."""
    one = b"kernel void k(global float *p, int n) { p[get_global_id(0)] *= 3.0f; }"
    loop = b"""kernel void k(global volatile float *p, int n) {
      for (int i = 0; i < n; i++) p[get_global_id(0)] *= 3.0f;
    }"""
    found: list[iga.ThreadWork] = []
    for source in (one, loop):
        built = ocloc.compile_source(source, device(name).device, "")
        code = zebin.section(built.zebin, ".text.k")
        work = iga.read_work(code, device(name).isa, device(name).register_bytes)
        if work is None:
            pytest.skip("no decoder of instructions: libiga64.so.1")
        found.append(work)
    once, repeated = found
    # one message for the accesses of all work-items, or one for those of each half
    assert repeated.messages - once.messages in (15 * 2, 15 * 4)
    assert once.cycles < repeated.cycles < 100 * once.cycles
    assert once.waits >= 2 and repeated.waits >= 16 and repeated.products >= 16 * 8
    assert iga.read_work(b"", device(name).isa, 64) is None


@pytest.mark.usefixtures("offline_compiler")
def test_code_that_calls_what_is_not_there_is_refused() -> None:
    source = b"void nowhere(global int *);\nkernel void k(global int *p) { nowhere(p); }"
    with pytest.raises(CompilerFailure, match="does not know the function nowhere"):
        ocloc.compile_source(source, "pvc", "")


@pytest.mark.usefixtures("offline_compiler")
def test_failures_name_the_reason_in_one_line() -> None:
    with pytest.raises(CompilerFailure) as error:
        ocloc.compile_source(b"kernel void k(global int *p) { p = ; }", "pvc", "")
    assert "expected expression" in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(CompilerFailure, match="Cannot get HW Info for device nothing"):
        ocloc.compile_spirv(bytes(20), "nothing", "")


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"\x7fELF\x02" + bytes(80), b"\x7fELF\x02" + b"\xff" * 80])
def test_a_damaged_zebin_is_an_error(damage: bytes) -> None:
    with pytest.raises(ValueError, match=r"ELF|zebin"):
        zebin.read_kernel(damage, "k")
