"""Schedules of kernels on GPUs built step by step: each step narrows the forms of a launch.

    s = launch_schedule(subject.listed.choices)
    s.tile(i=128, j=64).stages(8).warp_specialize()
    s.data()                                            the first form of each launch of which all is true

A step that no form is left for raises ScheduleError, with the forms that there are, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.kernels.launch_choices import LaunchChoice, Level
from motet.compiler.kernels.schedule import LaunchesSchedule
from motet.compiler.schedule_text.launches import (
    LaunchRule,
    form_rule,
    launches_text,
    main_launch,
    narrowed,
    number_rule,
    parts_rule,
    specialized_rule,
    tile_rule,
)
from motet.errors import OptionError, ScheduleError


class LaunchSchedule:
    """The forms that are left for each launch. Steps apply to launch number `launch`, at first the main one."""

    def __init__(self, launches: Sequence[Sequence[LaunchChoice]]) -> None:
        self._all = [list(each) for each in launches]
        self._left = [list(each) for each in launches]
        self.launch = main_launch(launches)

    def tile(self, level: Level = "block", **sizes: int) -> LaunchSchedule:
        """The elements along each loop that a block computes at a time; with another level, a warp or a thread."""
        rules = [tile_rule(dim, size, level) for dim, size in sizes.items()]
        return self._narrow(*rules, *([parts_rule(sizes, level)] if level != "block" else []))

    def warps(self, count: int) -> LaunchSchedule:
        """The warps of a block."""
        return self._narrow(number_rule("warps", count))

    def stages(self, count: int) -> LaunchSchedule:
        """The iterations of the innermost loop whose loads are in flight."""
        return self._narrow(number_rule("stages", count))

    def cluster(self, blocks: int) -> LaunchSchedule:
        """The blocks of a cluster, which share loads."""
        return self._narrow(number_rule("cluster", blocks))

    def form(self, name: str) -> LaunchSchedule:
        """The kind of the program, as `ring`, `descriptors`, `vectors`, or a whole label."""
        return self._narrow(form_rule(name))

    def warp_specialize(self, wanted: bool = True) -> LaunchSchedule:
        """Whether some warps load what others compute with."""
        return self._narrow(specialized_rule(wanted))

    def of_launch(self, number: int) -> LaunchSchedule:
        """Makes further steps apply to launch `number`."""
        if not 0 <= number < len(self._all):
            raise ScheduleError("launch", str(number), "there is no such launch", f"0 to {len(self._all) - 1}")
        self.launch = number
        return self

    def forms(self) -> list[LaunchChoice]:
        """The forms that are left, in the compiler's order."""
        return list(self._left[self.launch])

    def data(self) -> LaunchesSchedule:
        """The schedule as the compiler takes it."""
        return LaunchesSchedule([each[0].form for each in self._left])

    def text(self) -> str:
        """The schedule in the declarative form."""
        return launches_text(self.data(), self._all)

    def _narrow(self, *rules: LaunchRule) -> LaunchSchedule:
        self._left[self.launch] = narrowed(self._left[self.launch], rules, self.launch)
        return self


def launch_schedule(launches: Sequence[Sequence[LaunchChoice]]) -> LaunchSchedule:
    """A schedule of a kernel whose launches have these forms (`subject.listed.choices`), for steps that narrow them.
    Raises OptionError for a kernel without launches."""
    if not launches:
        raise OptionError("schedule: the kernel has no launches; expected one for a GPU")
    return LaunchSchedule(launches)
