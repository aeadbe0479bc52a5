"""Schedules of GPUs as text and as steps: which form they select, what is refused, and that text is read back."""

from __future__ import annotations

import pytest

from motet.compiler.schedule_text.launches import choice_text
from motet.errors import OptionError, ScheduleError
from motet.lab.language import launch_schedule
from motet.lab.space import ScheduleSpace
from motet.lab.subject import KernelSubject, open_program, subject_of

pytest.importorskip("yaml")

GPU = "cuda{arch=sm_90a}"


@pytest.fixture(scope="module")
def product() -> KernelSubject:
    return subject_of(open_program("matmul:512x512x512xf16", GPU))


@pytest.mark.parametrize("text, label", [
    ('{"i#64": {"block"}, "j#32": {"block"}}', "64x32x128 warps=4 stages=4"),
    ('{"i#64": {"block"}, "j#32": {"block"}, "k#64": {}}', "64x32x64 warps=4 stages=4"),
    ('{"i#64": block, "j#64": block, "i#32": warp, "j#32": warp}', "64x64x128 warps=4 stages=4"),
    ('{"warp_specialize", "j#96": {"block"}}', "ring 128x96x64 stages=7"),
    ('{"form": "descriptors"}', "descriptors 64x64x64 warps=4 stages=4"),
    ('{"form": "ring 64x192x64 stages=6"}', "ring 64x192x64 stages=6"),
    ('{"k#256": {"stages": 2}, "i#32": {"block"}}', "32x16x256 warps=2 stages=2"),
    ('{"warps": 8, "stages": 8}', "ring 128x64x64 stages=8"),
    ('{"warp_specialize": false, "i#128": {"block"}, "cluster": 1}', "128x16x128 warps=4 stages=4"),
    ("{}", "64x32x128 warps=4 stages=4"),
])
def test_text_selects_the_first_form_that_agrees(text: str, label: str, product: KernelSubject) -> None:
    found = product.parse(text)
    assert [each.form for each in found.launches] == [label]
    assert not product.reasons(found)
    assert product.parse(product.text(found)) == found


def test_the_text_of_each_form_selects_it(product: KernelSubject) -> None:
    for text, device in (("conv2d:1x56x56x64,3x3x64x64", GPU), ("depthwise_conv2d:1x56x56x64,3x3x64", GPU),
                         ("softmax:512x1000", GPU), ("sum:4x100000", GPU), ("add:1000x1001", "cuda{arch=sm_80}")):
        subject = subject_of(open_program(text, device))
        for choice in max(subject.listed.choices, key=len):
            found = subject.parse(choice_text(choice))
            assert choice_text(choice) in [choice_text(each) for each in max(subject.listed.choices, key=len)
                                           if each.form in found.launches], text
        assert subject.parse(subject.text(subject.chosen)) == subject.chosen


@pytest.mark.parametrize("text, told", [
    ('{"i#64": {"block"}, "j#48": {"block"}}', 'tile of j#48: no form of launch0 with the entries before it has it; '
     'expected one of {"i#64": {"block"}, "j#32": {"block"}, "k#128": {"block"}, "warps": 4, "stages": 4}; '),
    ('{"x#4": {"block"}}', "loop of x#4: there is no such loop or primitive of a launch; expected one of i, j, k, "),
    ('{"i": {"parallelize"}}', 'parallelize of i: launches of GPUs have no such primitive; expected the tile of a '
     'block, as "i#64": {"block"}'),
    ('{"j#64": {"vectorize"}}', "vectorize of j#64: launches of GPUs have no such primitive; expected no entry: each "),
    ('{"j#64": {"magic"}}', "magic of j#64: launches of GPUs have no such primitive; expected one of block, "),
    ('{"i": {"block"}}', "tile of i: a launch has no loop over a whole dimension; expected a tile's size, as i#64"),
    ('{"i#64": {"block", "warp"}}', "warp of i#64: it is the tile of a block already"),
    ('{"warps": 3}', "warps of 3: no form of launch0 has it"),
    ('{"warps": "many"}', "warps of many: it is no number; expected a number from 1"),
    ('{"cluster": 4}', "cluster of 4: no form of launch0 has it"),
    ('{"form": "square"}', "form of square: no form of launch0 has it"),
    ('{"i#64": {"block"}, "j#32": {"block"}, "i#64": {"warp"}}', "i#64 is twice in one mapping"),
    ('{"i#64": {"block"}, "j#32": {"block"}, "i#8": {"warp"}, "j#8": {"warp"}}', "warp of i#8, j#8: no form"),
    ('{"launch2": {"warps": 4}}', "launch of launch2: there is none, or it has entries already; expected one of "),
])
def test_what_no_form_has_is_an_error_that_lists_the_forms(text: str, told: str, product: KernelSubject) -> None:
    with pytest.raises(OptionError) as error:
        product.parse(text)
    assert told in str(error.value)


def test_steps_narrow_the_forms(product: KernelSubject) -> None:
    s = launch_schedule(product.listed.choices)
    s.tile(i=64).stages(4)
    before = s.forms()
    assert len(before) > 2
    with pytest.raises(ScheduleError, match=r"warps of 8: no form of launch0 has it"):
        s.warps(8)
    assert s.forms() == before
    s.tile(j=64, k=128).tile("warp", i=32, j=32).warp_specialize(False)
    assert s.data() == product.parse(s.text())
    assert s.data().launches[0].form == "64x64x128 warps=4 stages=4"
    with pytest.raises(ScheduleError, match="there is no such launch; expected 0 to 0"):
        s.of_launch(1)
    with pytest.raises(OptionError, match="the kernel has no launches"):
        launch_schedule(())


def test_holes_are_spaces_of_forms(product: KernelSubject) -> None:
    text = '{"i#$m": {"block"}, "j#$n": {"block"}, "k#128": {"block"}}'
    holes = {"m": [32, 48, 64], "n": [32, 64]}
    space = ScheduleSpace.of_text(text, product.kernel, holes, product.reasons, product.parse)
    points = [dict(point) for point in space.points()]
    assert points == [{"m": 32, "n": 64}, {"m": 64, "n": 32}, {"m": 64, "n": 64}]
