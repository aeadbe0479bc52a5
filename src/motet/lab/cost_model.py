"""A learned cost model: gradient-boosted trees that predict the logarithm of a point's seconds.

LightGBM or scikit-learn if installed; else, an ensemble of nearest neighbours. `error` is the mean relative error of
the predictions made for points before they were measured.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from motet.lab.space import Point, ScheduleSpace

_NEIGHBOURS = 4


class CostModel:
    """A model over the points of `space`. `library` is the one that trains it."""

    def __init__(self, space: ScheduleSpace, seed: int) -> None:
        self._space, self._seed = space, seed
        self._errors: list[float] = []
        self._regressor: Any = None
        known = [name for name in ("lightgbm", "sklearn") if importlib.util.find_spec(name) is not None]
        self.library = known[0] if known else "nearest neighbours"

    @property
    def error(self) -> float | None:
        """None before the first prediction was checked."""
        return float(np.mean(self._errors)) if self._errors else None

    def train(self, told: Sequence[tuple[Point, float]]) -> None:
        features = self._features([point for point, _ in told])
        wanted = np.log([seconds for _, seconds in told])
        self._regressor = self._new()
        self._regressor.fit(features, wanted)

    def predict(self, points: Sequence[Point]) -> list[float]:
        """The predicted seconds."""
        return [math.exp(value) for value in self._regressor.predict(self._features(points))]

    def observe(self, point: Point, seconds: float) -> None:
        """Check the prediction for a point that was measured."""
        if self._regressor is not None:
            self._errors.append(abs(self.predict([point])[0] / seconds - 1))

    def _features(self, points: Sequence[Point]) -> np.ndarray[Any, np.dtype[np.float64]]:
        rows = [
            [float(each.values.index(point[each.name])) if point.get(each.name) in each.values else -1.0
             for each in self._space.parameters]
            for point in points
        ]
        return np.array(rows, np.float64)

    def _new(self) -> Any:
        if self.library == "lightgbm":
            trees: Any = importlib.import_module("lightgbm")
            return trees.LGBMRegressor(
                n_estimators=100, min_child_samples=2, random_state=self._seed, verbose=-1, n_jobs=1)
        if self.library == "sklearn":
            ensemble: Any = importlib.import_module("sklearn.ensemble")
            return ensemble.GradientBoostingRegressor(n_estimators=100, random_state=self._seed)
        return NearestNeighbours()


class NearestNeighbours:
    """Predicts the mean of the nearest points, weighted by the inverse of the distance in scaled features."""

    def fit(self, features: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
        self._scale = features.std(axis=0) + 1e-9
        self._features, self._wanted = features / self._scale, wanted

    def predict(self, features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        found: list[float] = []
        for row in features / self._scale:
            distance = np.abs(self._features - row).sum(axis=1)
            nearest = np.argsort(distance)[:_NEIGHBOURS]
            weights = 1 / (distance[nearest] + 1e-3)
            found.append(float((self._wanted[nearest] * weights).sum() / weights.sum()))
        return np.array(found)
