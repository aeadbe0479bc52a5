"""Intel's GPUs as targets: how devices are spelled, what is refused, and the tables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from motet.artifact.intel_gpus import INTEL_GPUS, canonical, gpu_of_id
from motet.compiler.targets.families import resolve_target, target_names
from motet.compiler.targets.gpu import GpuTarget
from motet.compiler.targets.intel import INTEL
from motet.errors import OptionError


def names(**options: str) -> list[str]:
    return target_names("intel", options, "intel")


@pytest.mark.parametrize("spelling", ["pvc", "0x0bd5", "0x0BD5", "12.60.7", "12.60"])
def test_a_device_has_several_spellings(spelling: str) -> None:
    assert names(device=spelling) == ["intel:pvc", "intel:spirv"]


def test_every_id_and_version_names_its_device() -> None:
    for gpu in INTEL_GPUS.values():
        spelled = [gpu.version, f"{gpu.version}.3", gpu.ocloc, *map(hex, gpu.ids)]
        assert {canonical(text) for text in spelled} == {gpu.name}
        assert all(gpu_of_id(number) is gpu for number in gpu.ids)
    assert gpu_of_id(0x1234) is None


def test_spirv_for_all_devices_comes_last_and_once() -> None:
    assert names(device="tgllp+pvc") == ["intel:tgllp", "intel:pvc", "intel:spirv"]
    assert names(device="spirv") == ["intel:spirv"]
    assert names(device="pvc+0x0bd5")[0] == "intel:pvc" and len(names(device="pvc+0x0bd5")) == 2


def test_the_mode_of_registers_is_part_of_the_target() -> None:
    assert names(device="pvc", registers="large") == ["intel:pvc/large", "intel:spirv/large"]
    assert names(device="pvc", registers="default") == ["intel:pvc", "intel:spirv"]
    target = resolve_target("intel:pvc/large")
    assert isinstance(target, GpuTarget) and target.xpu is not None and target.xpu.registers == "large"


def test_the_mode_of_registers_needs_a_device_with_native_code() -> None:
    assert names(device="spirv", registers="default") == ["intel:spirv"]
    assert names(device="spirv+tgllp", registers="small") == ["intel:spirv/small", "intel:tgllp/small"]
    assert names(device="spirv", subgroup="32", precision="tf32") == ["intel:spirv/tf32/32"]


def test_the_size_of_sub_groups_is_part_of_the_target() -> None:
    assert names(device="pvc", subgroup="32", registers="large") == ["intel:pvc/large/32", "intel:spirv/large/32"]
    assert names(device="pvc", subgroup="auto", registers="auto") == ["intel:pvc/auto", "intel:spirv/auto"]
    found = [resolve_target(f"intel:{name}/32") for name in ("pvc", "spirv")]
    assert [each.xpu.sub_group for each in found if isinstance(each, GpuTarget) and each.xpu is not None] == [32, 32]
    assert found[1].requires == ("sub-groups-of-32",)
    assert found[0].requires == resolve_target("intel:pvc").requires


def test_tf32_is_for_matrix_engines() -> None:
    assert names(device="pvc+dg2", precision="tf32", registers="auto")[0] == "intel:pvc/tf32/auto"
    found = [resolve_target(f"intel:{name}/tf32") for name in ("pvc", "dg2", "spirv")]
    assert [target.precision for target in found if isinstance(target, GpuTarget)] == ["tf32", "ieee", "ieee"]


@pytest.mark.parametrize(("options", "parts"), [
    ({"device": "foo"}, ["device foo is unknown", "available: pvc, dg2, acm-g11"]),
    ({"device": "0x9999"}, ["device 0x9999 is unknown", "tgllp"]),
    ({"device": "pvc+"}, ["device (empty) is unknown"]),
    ({"registers": "huge"}, ["registers huge is unknown; available: default, small, large, auto"]),
    ({"device": "spirv", "registers": "large"}, [
        "registers large has no effect for device spirv", "leave it out, or name a device with native code: pvc, dg2",
    ]),
    ({"subgroup": "8"}, ["subgroup 8 is unknown; available: auto, 16, 32"]),
    ({"subgroup": ""}, ["subgroup (empty) is unknown; available: auto, 16, 32"]),
    ({"precision": "tf32x3"}, ["precision tf32x3 is unknown; available: ieee, tf32"]),
    ({"arch": "pvc"}, ["option arch is unknown; available: device, precision, registers, subgroup, queues"]),
])
def test_mistakes_list_what_is_known(options: Mapping[str, str], parts: list[str]) -> None:
    with pytest.raises(OptionError) as error:
        names(**options)
    assert all(part in str(error.value) for part in parts) and "\n" not in str(error.value)


def test_a_device_is_matched_by_its_architecture_alone() -> None:
    for target in INTEL.targets.values():
        assert isinstance(target, GpuTarget) and target.xpu is not None and len(target.requires) == 1
        assert target.xpu.work_group % 32 == 0 and 16 in target.xpu.sub_groups
    features = [target.requires for target in INTEL.targets.values()]
    assert len(set(features)) == len(features)
