"""nevergrad:NAME: an optimiser of Nevergrad (CMA, DE, PSO, OnePlusOne, NGOpt, …)."""

from __future__ import annotations

import importlib
import math
import random
import warnings
from typing import Any

from motet.errors import OptionError
from motet.lab.space import Point, ScheduleSpace, name_of

_BUDGET = 1000  # trials that the optimiser plans for
_ATTEMPTS = 256  # of the optimiser to propose a point with a schedule, before one is drawn


class NevergradSearch:
    def __init__(self, space: ScheduleSpace, seed: int, name: str) -> None:
        try:
            nevergrad: Any = importlib.import_module("nevergrad")
        except ImportError:
            raise OptionError("strategy nevergrad: the package nevergrad is not installed; install it with: "
                              "pip install 'motet[search]'") from None
        registry = nevergrad.optimizers.registry
        taken = name or "NGOpt"
        if taken not in registry:
            some = [each for each in ("CMA", "DE", "PSO", "OnePlusOne", "NGOpt", "TwoPointsDE") if each in registry]
            raise OptionError(f"strategy nevergrad:{name}: no such optimiser; expected one of Nevergrad's, such as "
                              f"{', '.join(some)}")
        self._space = space
        self._parameters = nevergrad.p.Dict(**{
            str(number): nevergrad.p.TransitionChoice(range(len(each.values))) if len(each.values) > 2
            else nevergrad.p.Choice(range(len(each.values)))
            for number, each in enumerate(space.parameters)
        })
        self._parameters.random_state.seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._optimiser = registry[taken](parametrization=self._parameters, budget=_BUDGET)
        self._random = random.Random(seed)
        self._starts = list(space.starts)
        self._open: dict[str, list[Any]] = {}

    def ask(self) -> Point | None:
        if self._starts:
            return self._starts.pop(0)
        for _ in range(_ATTEMPTS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                candidate = self._optimiser.ask()
            point = {
                each.name: each.values[candidate.value[str(number)]]
                for number, each in enumerate(self._space.parameters)
            }
            if self._space.schedule(point) is not None:
                self._open.setdefault(name_of(point), []).append(candidate)
                return point
            self._tell(candidate, 1e3)
        return self._space.sample(self._random)

    def tell(self, point: Point, seconds: float | None) -> None:
        for candidate in self._open.pop(name_of(point), []):
            self._tell(candidate, 1e3 if seconds is None else math.log(seconds))

    def _tell(self, candidate: Any, loss: float) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._optimiser.tell(candidate, loss)
