"""No call of a network moves parameters from one place to another: they are packed when compiling."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

from benchmarks.corpus.networks import network_rows  # noqa: E402 - they need torch
from benchmarks.corpus.operators import operator_rows  # noqa: E402
from benchmarks.corpus.row import Row  # noqa: E402

import motet  # noqa: E402
from motet.artifact.schema import Schedule  # noqa: E402

SAMPLE = ("keyword spotter", "recommender", "gru language model", "super-resolution")
LINEAR = ("linear 77×576→192", "linear 8×14×14×384→1536 gelu", "conv1d 1536×200→1536 4 depthwise")


def moved(schedule: Schedule) -> list[str]:
    """The kernels that read nothing but parameters, and write intermediate tensors to which no other kernel writes: not
    those that write a parameter beside other values, such as a class token before an image's patches."""
    parameters = {number for number, buffer in enumerate(schedule.buffers) if buffer.kind == "parameter"}
    moving: list[tuple[str, list[int]]] = []
    of_others: set[int] = set()
    for command in schedule.commands:
        reads = 1 if command.op == "copy" else command.reads
        read, written = set(command.buffers[:reads]), command.buffers[reads:]
        if read and read <= parameters:
            moving.append((command.kernel or "copy", written))
        else:
            of_others.update(written)
    return [
        name for name, written in moving
        if any(schedule.buffers[number].kind == "arena" and number not in of_others for number in written)
    ]


def check(row: Row) -> None:
    module, inputs = row.module()
    with torch.no_grad():
        artifact = motet.compile(module, inputs=list(inputs), devices="host{cpu=x86-64-v4}", cache=False)
    schedules = [each for variant in motet.load(artifact).variants for each in variant.schedules.values()]
    assert schedules and sum(len(schedule.commands) for schedule in schedules)
    assert [name for schedule in schedules for name in moved(schedule)] == []


@pytest.mark.parametrize("name", [*SAMPLE, *LINEAR])
def test_sample(name: str) -> None:
    check(next(row for row in (*network_rows(), *operator_rows()) if row.name == name))


@pytest.mark.slow
@pytest.mark.parametrize("row", network_rows(), ids=lambda row: row.name)
def test_networks(row: Row) -> None:
    check(row)
