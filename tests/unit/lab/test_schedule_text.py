"""Schedules as text: what is read, what is refused and with which words, and that written text is read back."""

from __future__ import annotations

import json
import random
import re

import pytest
from tests.unit.compiler.kernels.linalg_texts import MAXIMUM, kernel_of

from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.loop_names import loop_names
from motet.compiler.kernels.nest_legality import nest_reasons
from motet.compiler.kernels.schedule import Nest, NestCopy, NestLoop, NestRegion, NestSchedule, StageNest
from motet.errors import OptionError, ScheduleError
from motet.lab.language import format_schedule, parse_schedule, schedule_mapping

pytest.importorskip("yaml")

SIZES = {"i": 48, "j": 64, "k": 80, "b": 2, "h": 7, "w": 9, "f": 16, "r": 3, "s": 3, "c": 5}


@pytest.fixture(scope="module")
def product() -> Kernel:
    return kernel_of("i,k ; k,j -> i,j", SIZES)


@pytest.fixture(scope="module")
def ordered() -> Kernel:
    """A chain along k then c, whose order matters: running = a * b - running."""
    return kernel_of("i,k,c ; k,c,j -> i,j", SIZES, body=("arith.mulf %a0, %a1", "arith.subf %t, %r"))


def test_the_issue_example_means_what_it_says(product: Kernel) -> None:
    text = '{"i": {"parallelize"}, "j": {}, "k": {}, "i#4": {"unroll"}, "j#32": {"vectorize"}, "B": {"pack": "k"}}'
    nest = Nest([
        NestLoop("i", parallel=True), NestLoop("j"), NestLoop("k"), NestLoop("i", 4, unroll=0),
        NestLoop("j", 32, vectorize=True),
    ], packs=[NestCopy("B", "k")])
    assert parse_schedule(text, product) == NestSchedule([StageNest(0, nest)])


@pytest.mark.parametrize("text", [
    '{"i": {"parallelize": null}, "j": {}, "k": {}, "i#4": {"unroll": null}, "j#32": {"vectorize": null}}',
    "i: parallelize\nj:\nk:\ni#4: unroll\nj#32: vectorize\n",
    "i: {parallelize}\nj: {}\nk: {}\ni#4: {unroll: true}\nj#32: [vectorize]\n",
    "i: {parallelize: true, vectorize: false}\nj:\nk:\ni#4: unroll=4\nj#32: {vectorize: true, unroll: false}\n",
], ids=["json", "words", "flow", "booleans"])
def test_notations_have_the_same_meaning(text: str, product: Kernel) -> None:
    flow = '{"i": {"parallelize"}, "j": {}, "k": {}, "i#4": {"unroll"}, "j#32": {"vectorize"}}'
    wanted = schedule_mapping(parse_schedule(flow, product), product)
    found = schedule_mapping(parse_schedule(text, product), product)
    assert found == (wanted | {"i#4": {"unroll": 4}} if "unroll=4" in text else wanted)


def test_copies_are_written_at_a_loop_or_at_a_value(product: Kernel) -> None:
    loops = '"i": {}, "j": {}, "k": {%s}, "i#4": {}, "j#8": {}'
    at_loop = parse_schedule("{" + loops % '"pack": [1, "default", false], "buffer": "default"' + "}", product)
    at_value = parse_schedule("{" + loops % "" + ', "B": {"pack": "k"}, "C": {"buffer": "k"}}', product)
    assert at_loop == at_value
    padded = parse_schedule("{" + loops % "" + ', "B": {"pack": {"at": "k", "padding": 3}}}', product)
    assert isinstance(padded, NestSchedule) and padded.nests[0].nest.packs == [NestCopy("B", "k", 3)]


def test_parts_have_loops_for_themselves(product: Kernel) -> None:
    text = '{"i": {}, "j[0:60]": {"k": {}, "j#6": {"unroll"}, "B": {"pack": "k"}}, "j[60:]": {"k": {}}}'
    inner = Nest([NestLoop("j"), NestLoop("k"), NestLoop("j", 6, unroll=0)], packs=[NestCopy("B", "k")])
    regions = [NestRegion("j", 0, 60, inner), NestRegion("j", 60, None, Nest([NestLoop("j"), NestLoop("k")]))]
    wanted = NestSchedule([StageNest(0, Nest([NestLoop("i")], regions))])
    assert parse_schedule(text, product) == wanted
    assert parse_schedule(text.replace("j[0:60]", "j[:60:]").replace("j[60:]", "j[60:64]"), product) != wanted
    assert parse_schedule(format_schedule(wanted, product), product) == wanted


def test_convolutions_have_the_names_of_their_roles() -> None:
    kernel = kernel_of("b,2*h+r,w+s,c ; r,s,c,f -> b,h,w,f", SIZES)
    assert loop_names(kernel).dims == (("b", "h", "w", "f", "r", "s", "c"),)
    first = kernel_of("b,c,h+r,w+s ; f,c,r,s -> b,f,h,w", SIZES)
    (stage,) = first.stages
    sizes = dict(zip(loop_names(first).dims[0], stage.sizes, strict=True))
    assert sizes == {name: SIZES[name] for name in "bhwfrsc"}


def test_sums_of_floats_may_be_reordered_and_chains_may_not(product: Kernel, ordered: Kernel) -> None:
    assert parse_schedule('{"k": {}, "i": {}, "j": {}, "k#8": {"vectorize"}}', product)
    assert parse_schedule('{"j": {}, "k": {}, "l": {}, "i": {"unroll": 4}}', ordered)
    with pytest.raises(ScheduleError, match=r"interchange of k: .* its value in the iteration of k, l before"):
        parse_schedule('{"i": {}, "j": {}, "l": {}, "k": {}}', ordered)


WRONG = [  # a schedule of the product, and what the error names
    ('{"x": {}}', "loop of x: the stage has no dimension or value x; expected one of i, j, k, A, B, C"),
    ('{"i": {}, "j": {}}', "loop of k: no loop runs over it"),
    ('{"i#4": {}, "i": {}, "j": {}, "k": {}}', "tile of i#4: no loop over all of i is around it"),
    ('{"i": {}, "j": {}, "k": {}, "i#4": {}, "i#4": {}}', "i#4 is twice in one mapping"),
    ('{"i": {}, "j": {}, "k": {}, "i#4": {}, "i#8": {}}', "tile of i#8: the tile outside has 4 elements; expected a"),
    ('{"i": {}, "j": {}, "k": {}, "i#0": {}}', "tile of i#0: 0 is no size"),
    ('{"i": {}, "j": {}, "k": {}, "i#-3": {}}', "tile of i#-3: -3 is no size"),
    ('{"i": {}, "j": {}, "k": {}, "i#four": {}}', "tile of i#four: four is no size"),
    ('{"i": {}, "j": {}, "k": {}, "i#": {}}', "tile of i#: nothing is no size"),
    ('{"i": {}, "j": {}, "k": {}, "z#4": {}}', "loop of z#4: the stage has no dimension or value z"),
    ('{"i": {"parallelise"}, "j": {}, "k": {}}', "parallelise of i: there is no such primitive of a loop; expected "
     "parallelize, for the outermost loops"),
    ('{"i": {"magic"}, "j": {}, "k": {}}', "magic of i: there is no such primitive of a loop; expected one of"),
    ('{"i": {}, "j": {}, "k": {"rfactor"}}', 'no such primitive of a loop; expected split_reduction, and a loop'),
    ('{"i": {"compute_at": "j"}, "j": {}, "k": {}}', 'compute_at of i: there is no such primitive of a loop; expected '
     'the stage with "fuse", as "stage1": {"fuse": "i"}'),
    ('{"i": {"bind": "x"}, "j": {}, "k": {}}', 'bind of i: there is no such primitive of a loop; expected paral'),
    ('{"i": {"parallelize": 3}, "j": {}, "k": {}}', "parallelize of i: it has the value 3"),
    ('{"i": {"vectorize": "x"}, "j": {}, "k": {}}', "vectorize of i: it has the value x"),
    ('{"i": {"unroll": 0}, "j": {}, "k": {}}', "unroll of i: 0 is no number of copies"),
    ('{"i": {"unroll": -2}, "j": {}, "k": {}}', "unroll of i: -2 is no number of copies"),
    ('{"i": {"unroll": "all"}, "j": {}, "k": {}}', "unroll of i: all is no number of copies"),
    ('{"i": 3, "j": {}, "k": {}}', "loop of i: 3 are no flags"),
    ('{"k": {"parallelize"}, "i": {}, "j": {}}', "tasks would race: all iterations of k add to C.i, j.; expected one "),
    ('{"i": {}, "j": {"parallelize"}, "k": {}}', "parallelize of j: i around it is not parallel"),
    ('{"i": {"split_reduction"}, "j": {}, "k": {}}', "split_reduction of i: it is no reduction; parallelize it"),
    ('{"k": {"split_reduction": 4}, "i": {}, "j": {}}', "split_reduction of k: it has the value 4"),
    ('{"k": {"split_reduction", "parallelize"}, "i": {}, "j": {}}', "split_reduction of k: its iterations are tasks"),
    ('{"i": {"parallelize", "unroll"}, "j": {}, "k": {}}', "parallelize of i: its iterations are tasks"),
    ('{"i": {}, "j": {"vectorize"}, "k": {}}', "vectorize of j: k inside of it is neither a copy nor a lane"),
    ('{"i": {}, "j": {}, "k": {}, "j#8": {"vectorize"}, "i#4": {}}', "vectorize of j#8: i#4 inside"),
    ('{"i": {}, "k": {}, "j": {"vectorize"}, "j#8": {"unroll"}}', "vectorize of j: it steps by 8 elements"),
    ('{"j": {}, "k": {}, "i": {"vectorize"}, "j#8": {"vectorize"}}', "vectorize of (i|j#8): "),
    ('{"i": {}, "j": {}, "k": {}, "j#8": {"vectorize", "unroll"}}', "vectorize of j#8: it is unrolled"),
    ('{"i": {"unroll"}, "j": {"unroll"}, "k": {}}', "unroll of j: the body would be there 3072 times"),
    ('{"i": {}, "j": {}, "k": {}, "Q": {"pack": "k"}}', "loop of Q: the stage has no dimension or value Q"),
    ('{"i": {}, "j": {}, "k": {}, "B": {"pack": "k#3"}}', "pack of B: the nest has no loop k#3; expected one of i"),
    ('{"i": {}, "j": {}, "k": {}, "C": {"pack": "k"}}', "pack of C: it is not an operand alone; expected one of A, B"),
    ('{"i": {}, "j": {}, "k": {}, "A": {"buffer": "k"}}', "buffer of A: it is not a result; expected one of C"),
    ('{"i": {}, "j": {}, "k": {}, "B": {}}', "copy of B: neither pack nor buffer"),
    ('{"i": {}, "j": {}, "k": {}, "B": {"stage": "k"}}', "copy of B: neither pack nor buffer"),
    ('{"B": {"pack"}, "i": {}, "j": {}, "k": {}}', "pack of B: it names no loop, and none stands before it"),
    ('{"i": {}, "j": {}, "k": {}, "B": {"pack": {"at": "k", "padding": -1}}}', "pack of B: padding is -1"),
    ('{"i": {}, "j": {}, "k": {}, "B": {"pack": {"at": "k", "align": 1}}}', "pack of B: it has the entries at, align"),
    ('{"i": {}, "j": {"pack": "B"}, "k": {}, "B": {"pack": "k"}}', "pack of B: it has a copy already"),
    ('{"i": {}, "j": {}, "k": {"pack": [7, "default", true]}}', "pack of k: it names no operand; expected one of A, B"),
    ('{"i": {}, "j": {}, "k": {}, "j#8": {"vectorize"}, "B": {"pack": "j#8"}}', "one iteration of j#8 is a lane"),
    ('{"i": {"parallelize"}, "j": {"parallelize"}, "k": {}, "B": {"pack": "i"}}', "tasks of j would share"),
    ('{"j[0:10]": {"i": {}, "k": {}}, "j[12:]": {"i": {}, "k": {}}}', "split of j.12:.: the parts before end at 10"),
    ('{"j[0:10]": {"i": {}, "k": {}}}', "split of j: the parts end at 10, and j has 64 elements"),
    ('{"j[10:10]": {"i": {}, "k": {}}}', "split of j.10:10.: the parts before end at 0"),
    ('{"j[0:0]": {"i": {}, "k": {}}}', "split of j.0:0.: it has no elements"),
    ('{"j[0:]": {"i": {}, "k": {}}, "j[:8]": {"i": {}, "k": {}}}', "split of j.:8.: the part before has no end"),
    ('{"j": {}, "j[0:]": {"i": {}, "k": {}}}', "split of j.0:.: a loop or a part of j is around it"),
    ('{"j[0:8]": {"i": {}, "k": {}}, "i[8:]": {"j": {}, "k": {}}}', "parts of several dimensions follow each other"),
    ('{"j[0:64]": {"i": {}, "k": {}}, "i": {}}', "a loop follows the parts of a dimension"),
    ('{"j[0:]": {"i": {"parallelize"}, "k": {}}}', "parallelize of i: it is inside a part"),
    ('{"q[0:]": {"i": {}}}', "split of q.0:.: the stage has no dimension q"),
    ('{"j[0:]": 4}', "split of j.0:.: it has no loops"),
    ('{"i": {}, "j": {}, "k": {"tensorize": "mine"}}', "tensorize of k: no microkernel mine is known"),
    ('{"i": {}, "j": {}, "k": {"tensorize"}}', "tensorize of k: it names no microkernel"),
    ('{"i": {}, "j": {}, "k": {}, "stage1": {"fuse": "i"}}', "loop of stage1: the stage has no dimension or value"),
    ('{"stage0": {"fuse": "i"}}', "fuse of stage0: it is linked to no stage that has a nest"),
    ('{"stage0": {"i": {}, "j": {}, "k": {}}, "i": {}}', "nest of i: stage0 has loops already"),
    ('{"stage0": 3}', "stage0: expected the loops of the stage"),
    ('["i", "j"]', "expected a mapping of loops"),
    ('{"i": {}, "j": {}', "1:18: expected ',' or '}'"),
    ('{"i": &a {}, "j": *a, "k": {}}', "1:7: anchors, aliases and tags are not supported"),
    ('{"i": {}, "j": !!python/name:os.system {}, "k": {}}', "anchors, aliases and tags are not supported"),
    ("i: {}\n---\nj: {}\n", "a second document"),
    ('{["i"]: {}}', "expected a loop as a key"),
    ("{a: " * 40 + "}" * 40, "nested deeper than 16 levels"),
    ('{"class": "nest", "nests": [], "extra": 1}', "extra: class nest has no such field"),
    ('{"class": "nest", "nests": []}', "nest of stage0: it is not scheduled"),
    ('{"class": "other"}', "class=other: expected one of contraction"),
]


@pytest.mark.parametrize(("text", "says"), WRONG, ids=range(len(WRONG)))
def test_wrong_schedules_are_refused_in_one_line(text: str, says: str, product: Kernel) -> None:
    with pytest.raises(OptionError, match=says.replace("[", ".").replace("{", ".").replace("}", ".")) as caught:
        parse_schedule(text, product)
    assert "\n" not in str(caught.value)
    assert re.search("expected|not supported|nested deeper|second document", str(caught.value))


def test_a_copy_larger_than_scratch_memory_is_refused() -> None:
    kernel = kernel_of("i,k ; k,j -> i,j", {"i": 4, "j": 8192, "k": 8192})
    with pytest.raises(ScheduleError, match="pack of B: the copy at i has 268435456 bytes; expected at most 67108864"):
        parse_schedule({"i": {}, "j": {}, "k": {}, "B": {"pack": "i"}}, kernel)


@pytest.mark.parametrize("form", [
    "i,k ; k,j -> i,j", "b,2*h+r,w+s,c ; r,s,c,f -> b,h,w,f", "b,c,h+r,w+s ; f,c,r,s -> b,f,h,w", "i,j ; j -> i",
    "h+r,c ; r,c -> h,c", "i ; i -> i",
])
@pytest.mark.parametrize("seed", range(12))
def test_random_legal_schedules_are_read_back(form: str, seed: int) -> None:
    kernel = kernel_of(form, SIZES, body=MAXIMUM if seed % 3 == 2 else ("arith.mulf %a0, %a1", "arith.addf %r, %t"))
    schedule = random_schedule(kernel, random.Random(seed))
    assert not nest_reasons(kernel, schedule)
    assert parse_schedule(format_schedule(schedule, kernel), kernel) == schedule
    assert parse_schedule(json.dumps(schedule_mapping(schedule, kernel)), kernel) == schedule
    assert parse_schedule(schedule_mapping(schedule, kernel), kernel) == schedule


def random_schedule(kernel: Kernel, generator: random.Random) -> NestSchedule:
    """A legal schedule of the only stage: tasks, tiles in any order, copies, vectors, or parts of a dimension."""
    (stage,), names = kernel.stages, loop_names(kernel)
    dims = [name for name, size in zip(names.dims[0], stage.sizes, strict=True) if size != 1]
    parallel = [name for name, kind in zip(names.dims[0], stage.iterators, strict=True) if kind == "parallel"]
    tasks = [name for name in generator.sample(parallel, len(parallel)) if name in dims][:generator.randrange(2)]
    rest = [name for name in generator.sample(dims, len(dims)) if name not in tasks]
    loops = [*(NestLoop(name, parallel=True) for name in tasks), *map(NestLoop, rest)]
    tiled = generator.sample(dims, min(len(dims), generator.randrange(3)))
    loops += [NestLoop(name, generator.randrange(4, 16)) for name in tiled]
    inner = generator.choice(dims)
    unrolled = [NestLoop(name, 3, unroll=generator.choice([0, 2])) for name in dims if name != inner][:2]
    part = generator.choice(rest) if rest and generator.random() < 0.3 else ""
    loops += [*unrolled, NestLoop(inner, 2, vectorize=True)]
    at = generator.choice([loop.label for loop in loops[max(0, len(tasks) - 1):-1]])
    read = sorted({names.values[access.value] for access in stage.inputs})
    packs = [NestCopy(generator.choice(read), at, generator.randrange(3))] if generator.random() < 0.5 else []
    if not part:
        return NestSchedule([StageNest(0, Nest(loops, packs=packs))])
    cut = 1
    around = [loop for loop in loops if loop.parallel]
    nests = [Nest([loop for loop in loops if not loop.parallel]) for _ in range(2)]
    regions = [NestRegion(part, 0, cut, nests[0]), NestRegion(part, cut, None, nests[1])]
    return NestSchedule([StageNest(0, Nest(around, regions))])
