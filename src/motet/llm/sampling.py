"""The choice of the next token from logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.errors import OptionError


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. `temperature` 0 takes the most probable one. `top_k` keeps that many tokens (0: all),
    `top_p` the fewest whose probabilities sum up to it, `min_p` those with at least that share of the highest
    probability; they apply in this order, after the temperature. `repetition_penalty` divides positive logits of tokens
    that occurred, and multiplies negative ones (Keskar et al., CTRL, 2019)."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises OptionError for a number out of its range."""
        checks = (
            ("temperature", 0 <= self.temperature < float("inf"), "0 or more"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "more than 0, at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "0 to 1"),
            ("repetition_penalty", 0 < self.repetition_penalty < float("inf"), "more than 0"),
            ("seed", self.seed >= 0, "0 or more"),
        )
        for name, fits, expected in checks:
            if not fits:
                raise OptionError(f"{name}: it is {getattr(self, name)}; expected {expected}")


def choose(logits: np.ndarray, tokens: Sequence[int], sampling: Sampling, random: np.random.Generator) -> int:
    """The token chosen by `sampling` after `tokens`; `logits` is f32 [vocabulary]."""
    if sampling.temperature == 0 and sampling.repetition_penalty == 1:
        return int(logits.argmax())
    scores = logits.astype(np.float64)
    if sampling.repetition_penalty != 1:
        seen = np.unique(np.asarray(tokens, np.int64))
        old = scores[seen]
        scores[seen] = np.where(old > 0, old / sampling.repetition_penalty, old * sampling.repetition_penalty)
    if sampling.temperature == 0:
        return int(scores.argmax())
    candidates, probabilities = distribution(scores / sampling.temperature, sampling)
    return int(random.choice(candidates, p=probabilities))


def distribution(scores: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that top_k, top_p and min_p keep, the first of equal ones, with their probabilities, f64."""
    tokens = np.arange(scores.size)
    if 0 < sampling.top_k < scores.size:
        least = np.partition(scores, -sampling.top_k)[-sampling.top_k]
        tokens = np.flatnonzero(scores >= least)
        tokens = _descending(scores, tokens)[: sampling.top_k]
    shares = np.exp(scores[tokens] - scores[tokens].max())
    shares /= shares.sum()
    if sampling.top_p < 1:
        # Tokens below `least` sum up to less than the rest of 1: no set of the most probable ones needs them.
        least = (1 - sampling.top_p) / (2 * shares.size)
        order = _descending(shares, np.flatnonzero(shares >= least))
        order = order[: int(np.searchsorted(shares[order].cumsum(), sampling.top_p)) + 1]
        tokens, shares = tokens[order], shares[order]
    enough = shares >= sampling.min_p * shares.max()
    return tokens[enough], shares[enough] / shares[enough].sum()


def _descending(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """`places` in the order of their values, the greatest one first."""
    return places[np.argsort(-values[places], kind="stable")]
