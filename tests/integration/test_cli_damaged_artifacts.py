"""Whatever is wrong with an artifact, every command that reads one says so in one line, with status 1."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import models
from tests.unit.artifact.test_damage import forged

import motet
from motet import builder as mb

Fails = Callable[..., str]
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact with a constant, an arena, and two kernels."""
    x = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
    with mb.Graph("main") as g:
        weights = mb.softmax(mb.relu(g.input("x", (7, 64)) @ g.constant(x)))
        g.result(mb.relu(weights) @ mb.transpose(g.constant(x)))
    file = tmp_path_factory.mktemp("sound") / "x.motet"
    motet.compile(g).save(file)
    return file


def arguments(command: str) -> list[str]:
    return [command, "x.motet", *(["--input", "7x64xf32=random:1"] if command != "inspect" else [])]


def schedules(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of every target: which of them this machine runs does not matter then."""
    return [variant["schedules"]["main"] for variant in manifest["variants"]]


def buffers(kind: str, field: str, value: int | Callable[[int], int]) -> Change:
    """Sets `field` of every buffer of `kind`."""

    def change(manifest: dict[str, Any]) -> None:
        found = [b for schedule in schedules(manifest) for b in schedule["buffers"] if b["kind"] == kind]
        assert found
        for buffer in found:
            buffer[field] = value(buffer.get(field, 0)) if callable(value) else value

    return change


def every_schedule(edit: Callable[[dict[str, Any]], None]) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        for schedule in schedules(manifest):
            edit(schedule)

    return change


def every_command(**fields: object) -> Change:
    return every_schedule(lambda schedule: [command.update(fields) for command in schedule["commands"]] and None)


# Seen by all commands, for they are wrong by themselves.
ALWAYS: dict[str, Change] = {
    "arena offset beyond its end": buffers("arena", "offset", 1 << 40),
    "arena offset before its begin": buffers("arena", "offset", -64),
    "arena size beyond its end": buffers("arena", "bytes", lambda size: size + (1 << 30)),
    "arena of no bytes": every_schedule(lambda schedule: schedule.update(arena=0)),
    "arena larger than any memory": every_schedule(lambda schedule: schedule.update(arena=1 << 62)),
    "input that is not there": buffers("input", "index", 3),
    "result before the first": buffers("result", "index", -1),
    "parameter that is not there": buffers("parameter", "index", 1000),
    "buffer that is not there": every_command(buffers=[10**6]),
    "command that waits for itself": every_command(after=[10**6]),
    "scratch of negative size": every_schedule(lambda schedule: schedule.update(scratch=-1)),
    "symbol that is not there": every_command(tasks="none"),
    "operator that is not there": every_command(tasks=["%", 1, 1]),
    "kind of command that is not there": every_command(op="jump"),
    "kind of buffer that is not there": buffers("input", "kind", "file"),  # type: ignore[arg-type]
    "newer format": lambda manifest: manifest.update(schema=10**6),
    "no variants' schedules": lambda manifest: [v.update(schedules={}) for v in manifest["variants"]] and None,
    "object that is not there": lambda manifest: [v.update(objects=["a.o"]) for v in manifest["variants"]] and None,
}

# What depends on what the file holds, or on the shapes of a call.
RUNNING: dict[str, Change] = {
    "input offset beyond its end": buffers("input", "offset", 1 << 30),
    "input size beyond its end": buffers("input", "bytes", lambda size: size + 4),
    "result offset beyond its end": buffers("result", "offset", 4),
    "parameter offset beyond its end": buffers("parameter", "offset", 1 << 50),
    "parameter size beyond its end": buffers("parameter", "bytes", lambda size: size + 1),
    "kernel that is not there": every_command(kernel="none"),
    "hash of another content": lambda manifest: [m.update(sha256="0" * 64) for m in manifest["members"].values()]
    and None,
    "scratch larger than any memory": every_schedule(lambda schedule: schedule.update(scratch=1 << 60)),
    "arena that no machine has": every_schedule(lambda schedule: schedule.update(arena=1 << 60)),
    "code without variants": lambda manifest: manifest.update(variants=[]),
}


PLACES = ("x.motet: ", "main: ", "device host: not enough memory: ")


@pytest.mark.parametrize(
    ("defect", "command"),
    [(defect, command) for defect in ALWAYS for command in ("run", "inspect")]
    + [(defect, command) for defect in RUNNING for command in ("run", "bench")],
)
def test_forged_manifest(fails: Fails, sound: Path, tmp_path: Path, command: str, defect: str) -> None:
    change = ALWAYS.get(defect) or RUNNING[defect]
    (tmp_path / "x.motet").write_bytes(forged(sound.read_bytes(), change))
    message = fails(*arguments(command))
    assert message.startswith(PLACES)


@pytest.mark.parametrize("command", ["run", "bench", "inspect"])
@pytest.mark.parametrize("keep", [1, 21, 0.02, 0.3, 0.7, 0.99, 1.0])
def test_truncated_file(fails: Fails, sound: Path, tmp_path: Path, command: str, keep: float) -> None:
    data = sound.read_bytes()
    length = keep if isinstance(keep, int) else min(int(len(data) * keep), len(data) - 1)
    (tmp_path / "x.motet").write_bytes(data[:length])
    assert fails(*arguments(command)).startswith("x.motet: ")


@pytest.mark.parametrize("command", ["run", "bench"])
@pytest.mark.parametrize("suffix", [".o", ".safetensors"])
def test_flipped_bit_in_a_member(fails: Fails, sound: Path, tmp_path: Path, command: str, suffix: str) -> None:
    data = bytearray(sound.read_bytes())
    with zipfile.ZipFile(sound) as archive:
        found = [info for info in archive.infolist() if info.filename.endswith(suffix)]
    assert found
    for info in found:
        names = struct.unpack_from("<HH", data, info.header_offset + 26)
        data[info.header_offset + 30 + sum(names) + info.file_size // 2] ^= 4
    (tmp_path / "x.motet").write_bytes(data)
    message = fails(*arguments(command))
    assert message.startswith("x.motet: ") and "damaged" in message


def test_external_parameters_that_are_gone_or_others(fails: Fails, motet: Any, tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(models.MODELS["mlp_small"]().SerializeToString())
    assert motet("compile", "x.onnx", "--parameters", "external").returncode == 0
    with zipfile.ZipFile(tmp_path / "x.motet") as archive:
        beside = tmp_path / json.loads(archive.read("manifest.json"))["external_parameters"]
    data = beside.read_bytes()
    for content, words in ((data[:-1], "expected"), (data[:-1] + bytes([data[-1] ^ 1]), "damaged")):
        beside.write_bytes(content)
        message = fails("bench", "x.motet")
        assert beside.name in message and words in message
    beside.unlink()
    assert f"{beside.name}: cannot be read: no such file" in fails("bench", "x.motet")
