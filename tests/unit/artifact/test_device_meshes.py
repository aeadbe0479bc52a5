"""Flags and bindings of the nodes of a mesh."""

from __future__ import annotations

import pytest

from motet.artifact.device_flags import bindings_of, parse_bindings, parse_flags, parse_flags_or_uris
from motet.errors import OptionError


def test_a_mesh_stands_for_a_numbered_device_of_each_node() -> None:
    found = parse_bindings(["grid[2x2]=riscv:qemu?harts=1&guard=1", "host=host"], [])
    assert found == {
        "grid_0_0": "riscv:qemu?harts=1&guard=1", "grid_0_1": "riscv:qemu/1?harts=1&guard=1",
        "grid_1_0": "riscv:qemu/2?harts=1&guard=1", "grid_1_1": "riscv:qemu/3?harts=1&guard=1", "host": "host",
    }
    assert bindings_of({"grid[2]": "riscv:qemu"}) == {"grid_0": "riscv:qemu", "grid_1": "riscv:qemu/1"}


def test_flags_of_a_family_have_no_number() -> None:
    flags = parse_flags(["grid[3]=riscv{cpu=rv64gc},@cpu", "cpu=host"])
    assert [flag.name for flag in flags] == ["grid_0", "grid_1", "grid_2", "cpu"]
    assert {flag.expression for flag in flags[:3]} == {"riscv{cpu=rv64gc},@cpu"}
    flags = parse_flags_or_uris(["'grid[1x2]=riscv:qemu?harts=1'"])
    assert [(flag.name, flag.uri) for flag in flags] == [
        ("grid_0_0", "riscv:qemu?harts=1"), ("grid_0_1", "riscv:qemu/1?harts=1"),
    ]


@pytest.mark.parametrize("text, told", [
    ("grid[0x2]=riscv:qemu", "a mesh of 0 nodes; expected 1 to 64"),
    ("grid[9x9]=riscv:qemu", "a mesh of 81 nodes; expected 1 to 64"),
    ("grid[2]=riscv:qemu/1", "riscv:qemu/1 cannot be numbered"),
    ("grid[2]=", "no device cannot be numbered"),
])
def test_meshes_that_cannot_be_are_refused(text: str, told: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_bindings([text], [])
    assert told in str(error.value)
