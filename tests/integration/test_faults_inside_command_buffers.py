"""A kernel that fails inside a command buffer: what needs it does not run, what it needs has run, the point has its
error, and nothing else notices. On devices that are told to fail, and on an accelerator whose kernels do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.integration.noise import NoisyDevice, install, within
from tests.unit.runtime.drivers.riscv.opening import kernel, needs_qemu, open_riscv

from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.targets.families import resolve_target
from motet.errors import KernelFault, MotetError
from motet.runtime.device import Device, Executable, Reference, Work, find_device, open_device

SLOT = 64  # bytes that each command writes the first of

Opened = tuple[Device, str]  # and the target of its code


@pytest.fixture(params=["noisy-host?threads=4", "noisy-null?threads=3&queues=2", "riscv"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    if request.param == "riscv":
        if needs_qemu.mark.args[0]:
            pytest.skip(needs_qemu.mark.kwargs["reason"])
        device, target = open_riscv("harts=2"), "riscv:rv64gc"
    else:
        install(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        device, target = open_device(find_device(f"{request.param}&delay=1e-3")), "x86-64-v3"
    yield device, target
    device.close()


def random_order(random: np.random.Generator) -> list[tuple[int, ...]]:
    """For each command those before it that it waits for."""
    count = int(random.integers(3, 14))
    return [
        tuple(sorted({int(earlier) for earlier in random.integers(0, number, int(random.integers(0, 3)))}))
        if number else () for number in range(count)
    ]


def needed_by(order: list[tuple[int, ...]], number: int) -> set[int]:
    """What has to run before a command."""
    return {number}.union(*(needed_by(order, earlier) for earlier in order[number]))


def code(opened: Opened, count: int, failing: int) -> Executable:
    """Kernel `k` writes k + 1 into its slot, but for the failing one, where a kernel can fail by itself."""
    device, target = opened
    texts = ["declare void @llvm.trap()"]
    for number in range(count):
        store = f"%slot = load ptr, ptr %buffers\nstore i64 {number + 1}, ptr %slot\nret void"
        traps = number == failing and not isinstance(device, NoisyDevice)
        texts.append(kernel(f"k{number}", "call void @llvm.trap()\nret void" if traps else store))
    objects = compile_units([ObjectUnit("test", "\n".join(texts), True)], resolve_target(target), 1)
    return device.load(objects, ["test.o"])


def settle(point_wait: Callable[[], object]) -> MotetError | None:
    try:
        within(60, point_wait)
    except MotetError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(8))
def test_what_needs_a_failed_command_does_not_run_and_its_point_says_why(opened: Opened, seed: int) -> None:
    device, _ = opened
    random = np.random.default_rng(seed)
    order = random_order(random)
    failing = int(random.integers(len(order)))
    executable = code(opened, len(order), failing)
    work = [Work("launch", (Reference(0, SLOT * n, SLOT),), f"k{n}", 1, (), after) for n, after in enumerate(order)]
    recorded = device.record(executable, work, 1, 0)
    alone = [n for n, after in enumerate(order) if not after and n not in needed_by(order, failing)]
    good = device.record(executable, [work[number] for number in alone], 1, 0)
    memory, other, late = (device.allocate(SLOT * len(order)) for _ in range(3))
    for buffer in (memory, other, late):
        device.fill(buffer, 0).wait()
    if isinstance(device, NoisyDevice):
        device.fail(f"k{failing}")
    point = device.submit(recorded, [memory])
    dependant = device.submit(good, [late], [point], queue=1)
    independent = device.submit(good, [other], queue=1)

    error = settle(point.wait)
    assert isinstance(error, KernelFault) and error.kernel == f"k{failing}"
    assert str(settle(dependant.wait)) == str(error) and settle(independent.wait) is None
    ran = slots(device, memory, len(order))
    for number in range(len(order)):
        assert ran[number] in (0, number + 1)
        if failing in needed_by(order, number):
            assert ran[number] == 0, f"command {number} needs {failing}"
        if number in needed_by(order, failing) - {failing}:
            assert ran[number] == number + 1, f"command {failing} needs {number}"
    assert not any(slots(device, late, len(order)))
    assert [n for n, value in enumerate(slots(device, other, len(order))) if value] == alone


def slots(device: Device, buffer: object, count: int) -> list[int]:
    found = np.zeros(SLOT // 8 * count, np.int64)
    device.read(buffer, found).wait()  # pyright: ignore[reportArgumentType]
    return found[:: SLOT // 8].tolist()
