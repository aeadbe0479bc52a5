"""Finding GPUs, opening them, and saying which code they run."""

from __future__ import annotations

import ctypes
import importlib

import pytest
from tests.unit.runtime.drivers.cuda.fake import UUID, FakeApi
from tests.unit.runtime.drivers.cuda.opening import open_fake

from motet.artifact.schema import Variant
from motet.errors import DeviceError
from motet.runtime import device
from motet.runtime.device import DeviceInfo
from motet.runtime.drivers.cuda import driver
from motet.runtime.drivers.cuda.api import CudaError, load_api
from motet.runtime.drivers.cuda.program import obstacle


def probed(monkeypatch: pytest.MonkeyPatch, fake: FakeApi) -> list[DeviceInfo]:
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    return device.probe("cuda")


def test_a_gpu_is_described_without_making_a_context(monkeypatch: pytest.MonkeyPatch):
    fake = FakeApi(memory=123 << 20)
    [info] = probed(monkeypatch, fake)
    assert (info.uri, info.uuid, info.level, info.memory, info.cores) == ("cuda:0", UUID, "sm_90", 123 << 20, 4)
    assert info.available and fake.calls["retain"] == 0
    assert device.find_device(UUID, [info]).uri == device.find_device(f"cuda:{UUID}", [info]).uri == "cuda:0"


def test_a_machine_without_gpus_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    fake = FakeApi()
    monkeypatch.setattr(fake, "count", lambda: 0, raising=False)
    [info] = probed(monkeypatch, fake)
    assert not info.available and "no GPU" in info.reason

    def broken() -> int:
        raise CudaError(999, "UNKNOWN", "cuDeviceGetCount")

    monkeypatch.setattr(fake, "count", broken, raising=False)
    [info] = probed(monkeypatch, fake)
    assert not info.available and "UNKNOWN" in info.reason


def test_a_machine_without_the_driver_says_so(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match=r"^no NVIDIA driver \((libcuda.so.1|nvcuda.dll)\)$"):
        load_api()


def test_missing_bindings_are_named(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(DeviceError, match=r"^cuda-bindings is not installed; pip install 'motet\[cuda\]'$"):
        load_api()


def test_gpus_that_were_renumbered_are_not_mistaken():
    with pytest.raises(DeviceError, match=r"GPU 0 is GPU-00112233.*expected GPU-other"):
        driver.open_with(FakeApi(), DeviceInfo("a GPU", "cuda:0", family="cuda", uuid="GPU-other"))


def test_gpus_too_old_are_refused():
    with pytest.raises(DeviceError, match=r"compute capability 6\.1; expected 7\.0 or newer"):
        open_fake(FakeApi(capability=(6, 1)))


def test_options():
    gpu = open_fake(options="?queues=2&check=1")
    assert gpu.queues == 2
    gpu.close()
    with pytest.raises(DeviceError, match=r"no option 'stream'; there are: queues, check"):
        open_fake(options="?stream=1")


@pytest.mark.parametrize(("feature", "capability", "runs"), [
    ("sm_90a", (9, 0), True), ("sm_90a", (9, 1), False), ("sm_90a", (10, 0), False), ("sm_90a", (8, 9), False),
    ("sm_80", (8, 0), True), ("sm_80", (8, 9), True), ("sm_80", (9, 0), False), ("sm_86", (8, 0), False),
    ("sm_100a", (10, 0), True), ("sm_100f", (10, 3), True), ("sm_120a", (12, 0), True), ("sm_120a", (12, 1), False),
    ("ptx80", (8, 0), True), ("ptx80", (7, 5), False), ("ptx80", (12, 1), True), ("ptx100", (9, 0), False),
])
def test_code_runs_on_the_gpus_it_is_for(feature: str, capability: tuple[int, int], runs: bool):
    reason = obstacle(Variant("cuda", feature, "nvptx64-nvidia-cuda", [feature], [], {}), capability)
    assert (reason is None) == runs
    own = f"sm_{capability[0]}{capability[1]}"
    assert reason is None or (feature in reason and own in reason and "arch=" in reason)


def test_code_of_other_families_and_for_what_is_unknown_does_not_run():
    assert obstacle(Variant("hip", "gfx942", "", ["gfx942"], [], {}), (9, 0)) == "for hip devices"
    reason = obstacle(Variant("cuda", "sm_90a", "", ["sm_90a", "warp-drive"], [], {}), (9, 0))
    assert reason is not None and "warp-drive" in reason
