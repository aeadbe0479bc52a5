"""What the machine is said to be able to do, from its own description, and the drivers that say it."""

from __future__ import annotations

import os
import platform
import sys
import types
from importlib import metadata

import pytest

from motet.artifact.schema import Variant
from motet.cpu_features import MAX_CPU, host_features, level, max_level, parse, up_to
from motet.errors import DeviceError, OptionError
from motet.runtime import device
from motet.runtime.device import DeviceInfo, devices
from motet.runtime.selection import choose

X86_V3 = "flags\t\t: fpu pni sse4_1 sse4_2 ssse3 popcnt cx16 lahf_lm avx avx2 bmi1 bmi2 f16c fma abm movbe\n"
X86_V4 = X86_V3.strip() + " avx512f avx512bw avx512cd avx512dq avx512vl avx512_bf16 avx512_vnni amx_tile\n"


def test_x86_flags_become_names_of_llvm():
    features = parse(X86_V4, "x86_64")
    assert {"sse3", "sse4.1", "lzcnt", "bmi", "bmi2", "avx512bf16", "avx512vnni", "amx-tile", "fma"} <= features
    assert level(features, "x86_64") == "x86-64-v4-bf16"
    assert level(features - {"avx512bf16"}, "x86_64") == "x86-64-v4-vnni"
    assert level(features | {"amx-int8", "amx-bf16"}, "x86_64") == "x86-64-v4-amx"
    assert level(features - {"avx512vnni"}, "x86_64") == "x86-64-v4"
    assert level(parse(X86_V3, "x86_64"), "x86_64") == "x86-64-v3"
    assert level(frozenset({"fma"}), "x86_64") == "x86-64"


def test_only_what_every_core_has_counts():
    features = parse(X86_V4 + X86_V3, "x86_64")
    assert "avx2" in features and "avx512f" not in features


@pytest.mark.parametrize("highest", [
    "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "x86-64-v4-bf16", "x86-64-v4-amx",
])
def test_features_up_to_a_level_reach_it_and_no_more(highest: str):
    everything = parse(X86_V4.strip() + " amx_int8 amx_bf16 amx_fp16 avx512_fp16 avx_vnni vaes sha_ni\n", "x86_64")
    kept = up_to(highest, everything)
    assert kept <= everything and level(kept, "x86_64") == highest
    assert "sha" in kept and not kept & {"avx512fp16", "avxvnni", "amx-fp16", "vaes"}
    assert up_to(None, everything) == everything


@pytest.mark.skipif(platform.machine() != "x86_64", reason="speaks of x86-64")
def test_an_unknown_highest_level_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(MAX_CPU, "skylake")
    with pytest.raises(OptionError, match="MOTET_MAX_CPU=skylake: no such level; expected one of x86-64-v2, x86-64-v3"):
        max_level()
    monkeypatch.setenv(MAX_CPU, "")
    assert max_level() is None


def test_arm_and_riscv_are_read_too():
    assert {"neon", "dotprod", "lse", "sve"} <= parse("Features\t: fp asimd asimddp atomics sve\n", "aarch64")
    features = parse("isa\t\t: rv64imafdcv_zicsr_zvl256b\n", "riscv64")
    assert {"v", "m", "zvl128b", "zvl256b"} <= features and "zvl512b" not in features
    assert level(features, "riscv64") == "riscv64-v"


def test_an_unreadable_description_means_no_features():
    assert parse("", "x86_64") == frozenset()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="speaks of x86-64")
def test_this_machine_has_what_its_architecture_begins_with():
    assert {"sse2", "cx8"} <= host_features()


def test_a_variant_is_chosen_by_family_architecture_and_features():
    def make(target: str, family: str, triple: str, *features: str) -> Variant:
        return Variant(family, target, triple, list(features), [], {})

    variants = [
        make("sm_90", "cuda", "nvptx64-nvidia-cuda"),
        make("aarch64", "host", "aarch64-unknown-linux-gnu"),
        make("v4", "host", "x86_64-unknown-linux-gnu", "avx512f"),
        make("v3", "host", "x86_64-unknown-linux-gnu", "avx2"),
    ]
    assert choose(variants, "x86_64", {"avx512f", "avx2"}, "a").target == "v4"
    assert choose(variants, "x86_64", {"avx2"}, "a").target == "v3"
    assert choose(variants, "aarch64", set(), "a").target == "aarch64"
    with pytest.raises(DeviceError) as caught:
        choose(variants, "x86_64", set(), "a.motet")
    for part in ("a.motet: ", "sm_90 (for cuda", "aarch64 (for aarch64)", "v4 (needs avx512f", "v3 (needs avx2"):
        assert part in str(caught.value)


def test_the_host_is_always_there():
    host = devices()[0]
    assert host.uri == "host" and host.available
    assert host.cores == len(os.sched_getaffinity(0))
    assert host.threads >= 1 and host.memory > 1 << 20 and host.level and host.name


def test_the_threads_shown_are_those_that_sessions_use(monkeypatch):
    monkeypatch.setenv("MOTET_THREADS", "3")
    assert devices()[0].threads == 3


def test_a_driver_that_is_broken_is_shown_as_unavailable(monkeypatch):
    entries = [
        metadata.EntryPoint("gone", "motet_driver_that_is_not_there", device.GROUP),
        metadata.EntryPoint("good", "motet_good_driver", device.GROUP),
        metadata.EntryPoint("old", "motet_old_driver", device.GROUP),
    ]
    good = types.ModuleType("motet_good_driver")
    good.probe = lambda: [DeviceInfo("Accelerator", "good:0", cores=2)]
    good.api = device.API_VERSION
    old = types.ModuleType("motet_old_driver")
    old.probe = good.probe
    old.api = device.API_VERSION - 1
    monkeypatch.setitem(sys.modules, "motet_good_driver", good)
    monkeypatch.setitem(sys.modules, "motet_old_driver", old)
    monkeypatch.setattr(device, "plug_ins", lambda group: {entry.name: entry for entry in entries})
    monkeypatch.setattr(device, "BUILT_IN", {"host": device.BUILT_IN["host"]})
    host, gone, found, outdated = devices()
    assert host.uri == "host"
    assert not gone.available and "No module named 'motet_driver_that_is_not_there'" in gone.reason
    assert found == DeviceInfo("Accelerator", "good:0", cores=2)
    assert not outdated.available and f"version {device.API_VERSION - 1}" in outdated.reason
