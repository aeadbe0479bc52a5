"""The phases of upsampled axes: every point reads the pixels that the definition says, and no others."""

import pytest

from motet.compiler.passes.normalise.phases import PhasedAxis

CASES = [
    (step, offset, pixels, dilation, window)
    for step in (2, 3, 4) for offset in (0, 1, 2, 5) for pixels in (1, 4) for dilation in (1, 2, 3)
    for window in (1, 2, 3, 5)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_phases_read_the_pixels_of_the_definition(case: tuple[int, int, int, int, int]) -> None:
    step, offset, pixels, dilation, window = case
    for extent in (1, 2, 7, step * pixels + 1):
        axis = PhasedAxis(0, 0, 0, 0, 1, step, offset, dilation, window, pixels, extent)
        runs, phases = axis.split()
        read: dict[int, set[tuple[int, int]]] = {}
        for phase in phases:
            run = runs[phase.run]
            low, high = axis.padding(run)
            length = low + pixels + high
            assert not run.taps or length == (run.high - run.low - 1) + (run.taps - 1) * run.dilation + 1
            for number in range(phase.count):
                q = phase.begin + number + run.low
                assert run.low <= q < run.high
                read[phase.place + step * number] = {
                    (run.element - phase.number + run.stride * t, q + run.shift + run.dilation * t)
                    for t in range(run.taps) if 0 <= q + run.shift + run.dilation * t < pixels
                }
        expected = {
            point: {
                (j, (point + dilation * j - offset) // step) for j in range(window)
                if (point + dilation * j - offset) % step == 0
                and 0 <= (point + dilation * j - offset) // step < pixels
            }
            for point in range(extent)
        }
        assert read == expected


def test_windows_of_whole_steps_are_one_run() -> None:
    runs, phases = PhasedAxis(0, 0, 0, 0, 1, 2, 2, 1, 4, 28, 56).split()
    assert [run.taps for run in runs] == [2] and runs[0].count == len(phases) == 2


@pytest.mark.parametrize("case", [case for case in CASES if case[3] == 1], ids=str)
def test_all_phases_as_one_run_read_the_pixels_of_the_definition(case: tuple[int, int, int, int, int]) -> None:
    step, offset, pixels, dilation, window = case
    for extent in (step, 3 * step, step * (pixels + 1)):
        axis = PhasedAxis(0, 0, 0, 0, 1, step, offset, dilation, window, pixels, extent)
        run = axis.whole
        assert (run.low, run.high * step, run.count) == (0, extent, step)
        for point in range(extent):
            q, r = divmod(point, step)
            read = {
                (run.element - r + run.stride * t, q + run.shift + run.dilation * t) for t in range(run.taps)
            }
            assert {(j, pixel) for j, pixel in read if 0 <= j < window} == {
                (j, (point + j - offset) // step) for j in range(window) if (point + j - offset) % step == 0
            }
