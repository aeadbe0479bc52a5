"""Finds strategies by name."""

from __future__ import annotations

from motet.errors import OptionError
from motet.lab.space import ScheduleSpace
from motet.lab.strategies.evolutionary import Evolutionary
from motet.lab.strategies.exhaustive import Exhaustive
from motet.lab.strategies.learned import LearnedSearch
from motet.lab.strategies.local_search import LocalSearch
from motet.lab.strategies.nevergrad_search import NevergradSearch
from motet.lab.strategies.optuna_search import OptunaSearch
from motet.lab.strategies.random_search import RandomSearch
from motet.lab.strategies.ranking import Ranking
from motet.lab.strategies.strategy import Strategy

STRATEGIES = {
    "exhaustive": Exhaustive, "random": RandomSearch, "ranking": Ranking, "local": LocalSearch,
    "evolutionary": Evolutionary, "model": LearnedSearch,
}
LIBRARIES = {"optuna": OptunaSearch, "nevergrad": NevergradSearch}


def strategy_of(name: str, space: ScheduleSpace, seed: int = 0) -> Strategy:
    """The strategy `name` over `space`. Raises OptionError for an unknown name
    and for a library that is not installed."""
    library, _, own = name.partition(":")
    if name in STRATEGIES:
        return STRATEGIES[name](space, seed)
    if library in LIBRARIES:
        return LIBRARIES[library](space, seed, own)
    listing = ", ".join([*STRATEGIES, *(f"{each}:NAME" for each in LIBRARIES)])
    raise OptionError(f"strategy {name}: unknown; expected one of {listing}")
