"""A manifest that says of its code what is not so is refused: when it is read, or for the extents of a call."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.fuzz.manifests import CASES, Forger, Tree, compiled, mutate, run
from tests.seeds import examples

import motet
from motet.errors import ArtifactError

Change = Callable[[Tree], object]


@pytest.fixture(scope="module")
def forgers() -> dict[str, Forger]:
    return {case: Forger(compiled(case)) for case in CASES}


def schedules(tree: Tree) -> list[Tree]:
    return [schedule for variant in tree["variants"] for schedule in variant["schedules"].values()]


def commands(tree: Tree) -> list[Tree]:
    return [command for schedule in schedules(tree) for command in schedule["commands"]]


def each(find: Callable[[Tree], list[Tree]], field: str, value: Callable[[Any], Any]) -> Change:
    """Sets a field everywhere, by what it was."""

    def change(tree: Tree) -> None:
        for found in find(tree):
            found[field] = value(found.get(field))

    return change


def buffers(kind: str) -> Callable[[Tree], list[Tree]]:
    return lambda tree: [b for schedule in schedules(tree) for b in schedule["buffers"] if b["kind"] == kind]


def of(kernel: int, change: Callable[[Tree], object]) -> Change:
    """Changes the command at a place of every schedule."""
    return lambda tree: [change(schedule["commands"][kernel]) for schedule in schedules(tree)]


def refusal(forger: Forger, change: Change, case: str) -> str:
    """The error of an artifact whose seal fits what was changed."""
    tree = mutate_by(forger, change)
    with pytest.raises(ArtifactError) as caught, motet.load(forger.forged(tree, sealed=True)) as session:
        for arrays in CASES[case].inputs():
            session(*arrays)
    message = str(caught.value)
    assert "\n" not in message
    return message


def mutate_by(forger: Forger, change: Change) -> Tree:
    tree = copy.deepcopy(forger.manifest)
    change(tree)
    return tree


FALSEHOODS: list[tuple[str, Change, str]] = [
    ("fragment", each(commands, "tasks", lambda tasks: 7), "tasks; its code expects"),
    ("fragment", each(commands, "sizes", lambda sizes: [3]), "1 sizes; its code expects 0"),
    ("fragment", of(0, lambda c: c["buffers"].append(0)), "5 buffers; its code expects 4"),
    ("fragment", of(0, lambda c: c["buffers"].pop()), "3 buffers; its code expects 4"),
    ("fragment", of(0, lambda c: c.update(reads=1)), "reads 1 buffers; its code reads"),
    ("fragment", of(0, lambda c: c.update(kernel="free")), "no object of this target has it"),
    ("fragment", of(0, lambda c: c["buffers"].reverse()), "bytes; its code expects"),
    ("fragment", of(-1, lambda c: c.update(after=[])), "may run at once"),
    ("fragment", lambda tree: [s["commands"].pop() for s in schedules(tree)], "no command writes it"),
    ("fragment", lambda tree: [s["commands"].pop(0) for s in schedules(tree)], "before a command|earlier one"),
    ("fragment", each(buffers("input"), "bytes", lambda size: size // 2), "bytes; its code expects"),
    ("fragment", each(buffers("result"), "index", lambda index: 1), "there are 132"),
    ("fragment", lambda tree: tree["functions"][0]["inputs"][0].update(shape=[3, 64]), "to 8448; there are 768"),
    ("fragment", lambda tree: tree["functions"][0]["results"][0].update(shape=[90, 48]), "no command writes it from"),
    ("fragment", lambda tree: tree["variants"][0].update(features=[]), "are not those of its code"),
    ("fragment", lambda tree: tree["variants"][0].update(objects=[]), "are not those of its code"),
    ("conv", each(schedules, "scratch", lambda scratch: 0), "bytes of scratch; its code expects|no command"),
    ("conv", each(schedules, "arena", lambda arena: arena // 2), "there are"),
    ("conv", each(buffers("arena"), "offset", lambda offset: 0), "share bytes|before a command writes it|at once"),
    ("conv", each(buffers("parameter"), "index", lambda index: 0), "there are|bytes; its code expects|not the one"),
    ("conv", each(buffers("arena"), "offset", lambda offset: (offset or 0) + 4), "a multiple of 64|there are"),
    ("mlp", each(schedules, "scratch", lambda scratch: 0), "bytes of scratch; its code expects"),
    ("mlp", each(commands, "tasks", lambda tasks: ["*", ["+", "d0_0", 1], 9]), "tasks; its code expects"),
    ("mlp", each(commands, "sizes", lambda sizes: [["*", 2, "d0_0"]]), "its code expects"),
    ("mlp", each(commands, "sizes", lambda sizes: [["-", 0, "d0_0"]]), "expected extents of tensors|its code expects"),
    ("mlp", each(buffers("arena"), "offset", lambda offset: 64), "there are|share bytes|before a command|at once"),
    ("placed", lambda tree: tree["plans"]["main"]["steps"][-1]["operands"].__setitem__(0, 0), "expected 17x19xf32"),
    ("placed", lambda tree: tree["plans"]["main"]["results"].__setitem__(0, 0), "expected 17x19xf32"),
    ("placed", lambda tree: [v["schedules"].pop("main_region_0", 0) for v in tree["variants"]], "no variant has code"),
]


@pytest.mark.parametrize("number", range(len(FALSEHOODS)))
def test_what_is_not_so_of_the_code_is_refused(forgers: dict[str, Forger], number: int):
    case, change, expected = FALSEHOODS[number]
    message = refusal(forgers[case], change, case)
    assert re.search(expected, message), message


def test_another_manifest_that_would_run_is_refused(forgers: dict[str, Forger]):
    """Two constants of one size: nothing but the seal tells them from each other."""

    def swap(tree: Tree) -> None:
        for schedule in schedules(tree):
            one, other, *_ = (buffer for buffer in schedule["buffers"] if buffer["kind"] == "parameter")
            one["index"], other["index"] = other.get("index", 0), one.get("index", 0)

    forger = forgers["mlp"]
    with pytest.raises(ArtifactError, match="not the one that its code was compiled with"):
        motet.load(forger.forged(mutate_by(forger, swap), sealed=False))


def test_the_same_manifest_written_otherwise_is_accepted(forgers: dict[str, Forger]):
    forger = forgers["conv"]
    (arrays, *_) = CASES["conv"].inputs()
    with motet.load(forger.forged(forger.manifest, sealed=False)) as session:
        assert np.isfinite(session(*arrays)).all()


@pytest.mark.parametrize("sealed", [False, True])
def test_changed_manifests_are_refused_or_run_as_before(forgers: dict[str, Forger], sealed: bool):
    """With a seal that fits, another program may run; nothing reads or writes outside."""
    count = examples(64)
    for case, forger in forgers.items():
        counts = run(count, 20260, forger.forged(forger.manifest, sealed=False), case, sealed)
        assert counts.total == count
        assert counts.stopped == [] and counts.faults == 0, [*counts.stopped, *counts.lines]
        assert sealed or counts.other == 0, counts.lines


def test_a_change_of_a_seed_is_the_same_again(forgers: dict[str, Forger]):
    tree = forgers["mlp"].manifest
    changed = [mutate(tree, random.Random(seed)) for seed in range(30)]
    assert changed == [mutate(tree, random.Random(seed)) for seed in range(30)]
    assert sum(each != tree for each in changed) > 20
