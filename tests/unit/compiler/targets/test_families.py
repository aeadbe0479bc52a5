"""Which targets a device expression asks for, and what of it is for the driver."""

from __future__ import annotations

import pytest

from motet.compiler.targets.families import driver_options, resolve_target, target_names
from motet.errors import OptionError


@pytest.mark.parametrize(("family", "options", "names"), [
    ("riscv", {}, ["riscv:rv64gcv128", "riscv:rv64gc"]),
    ("riscv", {"vlen": "512", "harts": "4"}, ["riscv:rv64gcv512"]),
    ("riscv", {"vlen": "0"}, ["riscv:rv64gc"]),
    ("riscv", {"vlen": "512", "cpu": "rv64gc"}, ["riscv:rv64gc"]),
    ("host", {"cpu": "x86-64-v3+aarch64"}, ["x86-64-v3", "aarch64"]),
    ("cuda", {"arch": "sm_80+sm_90a"}, ["cuda:sm_80", "cuda:sm_90a"]),
    ("cuda", {"arch": "sm_80", "precision": "tf32"}, ["cuda:sm_80/tf32"]),
    ("metal", {"arch": "sm_80"}, []),
])
def test_options_choose_targets(family: str, options: dict[str, str], names: list[str]) -> None:
    assert target_names(family, options, family) == names


@pytest.mark.parametrize(("family", "options", "said"), [
    ("riscv", {"vlen": "100"}, "device riscv: vlen 100 is unknown; available: 0, 128, 256, 512, 1024"),
    ("riscv", {"harts": "2", "colour": "red"}, "option colour is unknown; available: cpu, harts, memory, vlen"),
    ("host", {"cpu": "z80"}, "cpu z80 is unknown; available: x86-64-v4, "),
    ("host", {"harts": "2"}, "option harts is unknown; available: cpu, threads, cores"),
])
def test_what_there_is_not_is_named(family: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        target_names(family, options, family)


def test_what_is_for_the_driver_is_passed_on() -> None:
    assert driver_options("riscv", {"vlen": "256", "cpu": "rv64gc", "memory": "64M"}) == "vlen=256&memory=64M"
    assert driver_options("host", {"cpu": "native"}) == ""
    assert driver_options("cuda", {"arch": "sm_80"}) == ""


def test_a_full_name_is_of_its_family() -> None:
    assert resolve_target("riscv:rv64gcv256").family == "riscv"
    assert resolve_target("null:x86-64-v3").family == "null"
    assert resolve_target("x86-64-v3").family == "host"
