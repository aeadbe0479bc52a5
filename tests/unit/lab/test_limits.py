"""The limits of devices whose clock counts instructions, without the devices."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from motet.compiler import service
from motet.compiler.targets.families import families
from motet.errors import MotetError
from motet.lab import evaluation, limits
from motet.lab.subject import open_program, subject_of
from motet.measuring import rates
from motet.runtime.device import DeviceInfo


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))


def counted(monkeypatch: pytest.MonkeyPatch, family: str, level: str, instruction: float) -> DeviceInfo:
    """A device that is opened with this level, and whose instructions take so many seconds."""
    info = DeviceInfo("a simulator", f"{family}:model", family=family)
    opened = SimpleNamespace(info=replace(info, level=level, instruction=instruction), close=lambda: None)
    monkeypatch.setattr(limits, "open_device", lambda _: opened)
    return info


@pytest.mark.parametrize("family, level, seconds, flops, bandwidth", [
    ("riscv", "rv64gcv128", 1e-9, 64e9, 128e9),  # eight registers of four lanes
    ("riscv", "rv64gcv1024", 1e-9, 512e9, 1024e9),
    ("embedded", "cortex-m55", 32e-9, 0.25e9, 0.5e9),
])
def test_the_peak_of_a_simulator_is_what_an_instruction_computes(
    monkeypatch: pytest.MonkeyPatch, family: str, level: str, seconds: float, flops: float, bandwidth: float
):
    found = limits.limits_of(counted(monkeypatch, family, level, seconds), 1)
    assert found.strict and (found.flops, found.bandwidth) == pytest.approx((flops, bandwidth))


def test_a_figure_of_a_simulator_beyond_its_peak_is_refused(monkeypatch: pytest.MonkeyPatch):
    info = counted(monkeypatch, "riscv", "rv64gcv128", 1e-9)
    subject = subject_of(open_program("matmul:16x16x16"))
    monkeypatch.setattr(evaluation, "device_info", lambda _: info)
    evaluation.expect_possible(subject, 2 * 16**3 / 64e9, 1)
    with pytest.raises(MotetError, match=r"8,192 operations take at the peak; the figure is wrong"):
        evaluation.expect_possible(subject, 2 * 16**3 / 80e9, 1)


def test_rates_are_measured_with_code_for_the_processor_of_the_machine(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, ...]] = []

    def measured(request: service.CompileRequest) -> None:
        asked.append(service.targets_of(request))

    monkeypatch.setattr(service, "compile", measured)
    monkeypatch.setattr(rates, "measure_rates", lambda *_: families()["embedded"].rates)
    for uri in ("embedded:qemu?machine=mps2-an386", "riscv:qemu?vlen=256&harts=1", "riscv:qemu"):
        rates.measure_family(DeviceInfo("a model", uri, family=uri.partition(":")[0]))
    assert asked == [("embedded:cortex-m4",), ("riscv:rv64gcv256",), ("riscv:rv64gcv128", "riscv:rv64gc")]
