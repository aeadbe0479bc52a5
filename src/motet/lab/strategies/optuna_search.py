"""optuna:NAME: a sampler of Optuna (TPE, CmaEs, GP, QMC, …)."""

from __future__ import annotations

import importlib
import random
from typing import Any

from motet.errors import OptionError
from motet.lab.space import Point, ScheduleSpace, name_of

_ILLEGAL = 1e3  # seconds that a point without a schedule is told as
_ATTEMPTS = 64  # of the sampler to propose a point with a schedule, before one is drawn


class OptunaSearch:
    def __init__(self, space: ScheduleSpace, seed: int, name: str) -> None:
        try:
            optuna: Any = importlib.import_module("optuna")
        except ImportError:
            raise OptionError("strategy optuna: the package optuna is not installed; install it with: "
                              "pip install 'motet[search]'") from None
        samplers = [each.removesuffix("Sampler") for each in dir(optuna.samplers) if each.endswith("Sampler")]
        taken = name or "TPE"
        if taken not in samplers or taken in ("Base", "Grid", "PartialFixed"):
            raise OptionError(f"strategy optuna:{name}: no such sampler; expected one of {', '.join(samplers)}")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._optuna = space, optuna
        self._study = optuna.create_study(sampler=getattr(optuna.samplers, f"{taken}Sampler")(seed=seed))
        for start in space.starts:
            self._study.enqueue_trial({each.name: each.values.index(start[each.name]) for each in space.parameters})
        self._random = random.Random(seed)
        self._open: dict[str, list[Any]] = {}

    def ask(self) -> Point | None:
        for _ in range(_ATTEMPTS):
            trial = self._study.ask()
            point = {
                each.name: each.values[trial.suggest_int(each.name, 0, len(each.values) - 1)]
                for each in self._space.parameters
            }
            if self._space.schedule(point) is not None:
                self._open.setdefault(name_of(point), []).append(trial)
                return point
            self._study.tell(trial, _ILLEGAL)
        return self._space.sample(self._random)

    def tell(self, point: Point, seconds: float | None) -> None:
        trials = self._open.pop(name_of(point), [])
        for trial in trials:
            if seconds is None:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, seconds)
