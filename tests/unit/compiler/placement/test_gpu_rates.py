"""Automatic placement with a GPU: work that is worth the way to it, by what its architecture can do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.prepared import load_source

from motet.artifact.schema import Alternative, LogicalDevice
from motet.compiler.placement.machine import ProgramMachine, rates_of_families
from motet.compiler.placement.place import Place
from motet.compiler.targets.cuda import CUDA
from motet.compiler.targets.device_flags import parse_device_flags

EXAMPLE = Path(__file__).parents[4] / "examples/gpu/classifier.mlir"


def places(text: str) -> dict[str, str]:
    """The device of every region."""
    flags = ("cpu=host", "gpu=cuda,@cpu")
    program = load_source(text, "test.mlir", place=Place(parse_device_flags(flags), True, table=rates_of_families()))
    return dict(re.findall(r'func\.func @(\w+)\(.*motet\.device = "(\w+)"', str(program.module)))


def test_what_is_worth_the_way_goes_to_the_gpu():
    assert places(EXAMPLE.read_text()) == {"one_region_0": "cpu", "many_region_0": "gpu"}


@pytest.mark.parametrize("name", sorted(CUDA.targets))
def test_every_architecture_has_rates_that_can_be(name: str):
    rates = rates_of_families(targets=[f"cuda:{name}", "cuda:sm_80"]).of("cuda")
    assert 1e13 < rates.contraction < 1e14 and 5e11 < rates.memory < 1e13
    assert rates.elementwise < rates.contraction and not rates.shared
    # A kernel of many operations for each byte takes what computing does, one of few what moving does.
    assert rates.contraction / rates.memory > 2


def test_the_first_target_counts_and_a_file_says_otherwise():
    first = rates_of_families(targets=["x86-64-v4", "cuda:sm_80/tf32", "cuda:sm_90a"]).of("cuda")
    assert first == CUDA.target_rates["sm_80"]
    assert rates_of_families().of("cuda") == CUDA.target_rates["sm_90a"]
    changed = rates_of_families({"cuda": {"memory": 7.0}}, ["cuda:sm_80"]).of("cuda")
    assert changed.memory == 7.0 and changed.contraction == first.contraction


def test_values_go_from_gpu_to_gpu_at_once():
    families = {"a": "cuda", "b": "cuda", "c": "null"}
    devices = [LogicalDevice(name, [Alternative(family)]) for name, family in families.items()]
    places = ProgramMachine(devices, [], rates_of_families()).machine
    rates = CUDA.target_rates["sm_90a"]
    assert places.per_byte[0][1] == places.per_byte[1][0] == pytest.approx(1 / rates.peer)
    assert places.latency[0][1] == rates.latency
    assert places.per_byte[0][2] > 1 / rates.download  # through the host
