"""Texts that are generated together in one session: continuous batching over a pool of cached positions.

A call reads the next tokens of any number of texts: one of each that is being generated, and chunks of prompts. Their
keys and values are stored at free places of the pool, in any order; masks say which places each token reads. A text
that ends frees its places, and one that waits takes them in the next call.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

import motet
from motet.errors import CallError
from motet.llm.architecture import Architecture
from motet.llm.blocks import BlockMatrix
from motet.llm.decoder import window_sizes
from motet.llm.sampling import Sampling, choose
from motet.llm.tensors import Weight

_MASKED = np.float32(-1e30)
_FREE = -1


@dataclass(eq=False)
class Text:
    """A prompt and what is generated after it. `reason` is None until it ends: `end` (the model's own end), `stop` (by
    its reader) or `length`."""

    tokens: list[int]
    limit: int  # how many tokens are generated at most
    sampling: Sampling
    prompt: int = field(init=False)
    read: int = 0
    reason: str | None = None
    needed: int = 0  # places of the pool, at most
    places: list[int] = field(default_factory=list[int])
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.prompt = len(self.tokens)
        self.random = np.random.default_rng(self.sampling.seed)


@dataclass
class Embeddings:
    """What the first layer reads of tokens: rows of a table, scaled, and rows of learnt positions."""

    table: Weight
    positions: np.ndarray | None
    scale: float

    def rows(self, tokens: np.ndarray, positions: np.ndarray) -> np.ndarray:
        some = self.table[tokens]
        wide = some.floats() if isinstance(some, BlockMatrix) else some.astype(np.float32)
        if self.scale != 1:
            wide *= np.float32(self.scale)
        return wide if self.positions is None else wide + self.positions[positions]


class PlacePool:
    """Keys and values of all layers at `capacity` places. Memory grows with the highest place that is used. `owner` and
    `position` say which text, by number, and where in it, each place belongs to."""

    def __init__(self, architecture: Architecture, capacity: int) -> None:
        self._shape = architecture.key_heads, architecture.head_size
        self.capacity = capacity
        self.free = list(range(capacity))
        self.owner = np.full(capacity, _FREE, np.int64)
        self.position = np.zeros(capacity, np.int64)
        self.used = 0  # all places from here on are free
        self.arrays = [np.zeros((self._shape[0], 0, self._shape[1]), np.float32)] * (2 * architecture.layers)

    def take(self, owner: int, positions: Sequence[int]) -> list[int]:
        """The lowest free places, for `positions` of a text."""
        places = [heapq.heappop(self.free) for _ in positions]
        self.owner[places], self.position[places] = owner, positions
        self.used = max(self.used, 1 + max(places, default=-1))
        return places

    def release(self, places: Sequence[int]) -> None:
        self.owner[list(places)] = _FREE
        for place in places:
            heapq.heappush(self.free, place)
        if self.used - 1 in places:
            held = np.flatnonzero(self.owner[: self.used] != _FREE)
            self.used = int(held[-1]) + 1 if held.size else 0

    @property
    def past(self) -> int:
        """The places that a call reads: those used, in steps, because each number of places needs a set-up."""
        count = max(self.used, 1)
        step = 64 if count <= 512 else 256
        return min(-(-count // step) * step, self.capacity)

    def views(self, past: int) -> list[np.ndarray]:
        """The arrays, [key_heads, past, head_size] each."""
        if self.arrays[0].shape[1] != past:
            heads, size = self._shape
            for index, old in enumerate(self.arrays):
                new = np.zeros((heads, past, size), np.float32)
                kept = min(past, old.shape[1])
                new[:, :kept] = old[:, :kept]
                self.arrays[index] = new
        return self.arrays


@dataclass
class BoundStep:
    """A call of the session for `count` tokens, of which it gives the logits of `outputs`, after `past` places: its
    memory, which further calls of these sizes use again. If calls `repeat`, also results are in memory that is kept,
    which takes longer to set up."""

    sizes: tuple[int, int, int]
    x: np.ndarray
    angles: list[np.ndarray]
    masks: list[np.ndarray]  # of cached and of new keys, for each length of windows
    chosen: np.ndarray
    views: list[np.ndarray]
    repeat: bool
    run: Callable[[], Sequence[np.ndarray]]  # returns logits, and keys and values

    @classmethod
    def make(
        cls, architecture: Architecture, session: motet.Session, sizes: tuple[int, int, int], views: list[np.ndarray],
        repeat: bool,
    ) -> BoundStep:
        """The call that reads keys and values from `views`."""
        count, outputs, past = sizes
        f32 = np.float32
        x = np.zeros((count, architecture.hidden), f32)
        angles = [np.zeros((count, each.frequencies.size), f32) for each in architecture.rotations for _ in range(2)]
        masks = [np.zeros((count, size), f32) for _ in window_sizes(architecture) for size in (past, count)]
        chosen = np.zeros((outputs, count), f32)
        arguments = x, *angles, *masks, chosen, *views
        if not repeat:
            return cls(sizes, x, angles, masks, chosen, list(views), False, partial(session, *arguments))
        kept = architecture.key_heads, count, architecture.head_size
        out = np.zeros((outputs, architecture.vocabulary), f32), *(np.zeros(kept, f32) for _ in views)
        return cls(sizes, x, angles, masks, chosen, list(views), True, session.bind(*arguments, out=out))

    def fits(self, sizes: tuple[int, int, int], views: list[np.ndarray]) -> bool:
        return self.sizes == sizes and self.views[0] is views[0]


@dataclass
class Engine:
    """Runs texts. Not thread-safe. `context` limits the length of a text, `chunk` the tokens of prompts in a call."""

    architecture: Architecture
    embeddings: Embeddings
    session: motet.Session
    context: int
    chunk: int
    capacity: int
    texts: list[Text] = field(default_factory=list[Text])
    waiting: list[Text] = field(default_factory=list[Text])

    def __post_init__(self) -> None:
        self.pool = PlacePool(self.architecture, self.capacity)
        self._reserved = 0
        self._bound: BoundStep | None = None
        windows = self.architecture.windows
        self._widest = None if None in windows else max(each for each in windows if each is not None)

    @property
    def slides(self) -> bool:
        """Whether all layers have windows that fit in the context: texts may then be longer."""
        return self._widest is not None and self._widest + self.chunk <= self.context

    @property
    def longest(self) -> int:
        return self.architecture.context if self.slides else self.context

    def add(self, text: Text) -> None:
        """Takes part in calls as soon as the pool has room. Raises CallError for no tokens, tokens outside the
        vocabulary, or more than fit in the context."""
        vocabulary = self.architecture.vocabulary
        if not text.tokens:
            raise CallError("prompt: it is empty; expected one token or more")
        if len(text.tokens) > self.longest:
            raise CallError(f"prompt: {len(text.tokens)} tokens; the model was compiled for a context of "
                            f"{self.longest}; expected a shorter prompt, or load it with a larger context")
        if wrong := [token for token in text.tokens if not 0 <= token < vocabulary]:
            raise CallError(f"prompt: token {wrong[0]}: the vocabulary has {vocabulary}")
        text.limit = min(text.limit, self.longest - len(text.tokens) + 1)
        text.needed = min(len(text.tokens) + text.limit, self.longest)
        if self.slides and self._widest is not None:
            text.needed = min(text.needed, self._widest + self.chunk)
        self.waiting.append(text)

    def remove(self, text: Text, reason: str) -> None:
        """Ends `text`, and frees its places."""
        text.reason = text.reason or reason
        if text in self.waiting:
            self.waiting.remove(text)
        if text in self.texts:
            self.texts.remove(text)
            self.pool.release(text.places)
            self._reserved -= text.needed
            text.places = []

    @property
    def busy(self) -> bool:
        return bool(self.texts or self.waiting)

    def step(self) -> list[tuple[Text, int]]:
        """One call. Returns each text that it gave a token, with the token; texts that have ended are removed."""
        rows = self._rows()
        if not rows:
            return []
        given: list[tuple[Text, int]] = []
        logits = self._call(rows)
        ready = [text for text, _ in rows if text.read == len(text.tokens)]
        for text, row in zip(ready, logits, strict=True):
            token = choose(row, text.tokens, text.sampling, text.random)
            if token in self.architecture.ends:
                self.remove(text, "end")
                given.append((text, token))
                continue
            text.tokens.append(token)
            given.append((text, token))
            if len(text.tokens) - text.prompt >= text.limit:
                self.remove(text, "length")
        return given

    def logits(self, text: Text) -> np.ndarray:
        """Reads all of an added text that has not been read; returns the logits after it, f32 [vocabulary]."""
        rows = np.empty((0, 0), np.float32)
        while text.read < len(text.tokens):
            rows = self._call([each for each in self._rows() if each[0] is text])
        return rows[0].copy()

    def _rows(self) -> list[tuple[Text, list[int]]]:
        """The tokens that the next call reads."""
        while self.waiting and self._reserved + self.waiting[0].needed <= self.capacity:
            text = self.waiting.pop(0)
            self._reserved += text.needed
            self.texts.append(text)
        left = self.chunk
        rows: list[tuple[Text, list[int]]] = []
        for text in sorted(self.texts, key=lambda each: len(each.tokens) - each.read):
            count = min(len(text.tokens) - text.read, max(left, 0))
            if count:
                rows.append((text, text.tokens[text.read : text.read + count]))
                left -= count
        return rows

    def _call(self, rows: Sequence[tuple[Text, list[int]]]) -> np.ndarray:
        """One call of the session, after which its keys and values are in the pool. Returns the logits of the texts
        that it has read to their ends, in their order in `rows`; they are overwritten by the next call."""
        tokens = np.array([token for _, some in rows for token in some])
        positions = np.array([text.read + index for text, some in rows for index in range(len(some))])
        owners = np.array([id(text) for text, some in rows for _ in some])
        lasts: list[int] = []
        count = 0
        for text, some in rows:
            count += len(some)
            text.read += len(some)
            if text.read == len(text.tokens):
                lasts.append(count - 1)
        past = self.pool.past
        step = self._step((count, max(len(lasts), 1), past))
        step.chosen.fill(0)
        step.chosen[np.arange(len(lasts)), lasts] = 1
        step.x[:] = self.embeddings.rows(tokens, positions)
        self._set_angles(step.angles, positions)
        self._set_masks(step.masks, owners, positions, past)
        logits, *fresh = step.run()
        self._store(rows, fresh)
        return logits[: len(lasts)]

    def _step(self, sizes: tuple[int, int, int]) -> BoundStep:
        """The last call again, if it has these sizes."""
        views = self.pool.views(sizes[2])
        repeat = self._bound is not None and self._bound.fits(sizes, views)
        if self._bound is None or not (repeat and self._bound.repeat):
            self._bound = BoundStep.make(self.architecture, self.session, sizes, views, repeat)
        return self._bound

    def _set_angles(self, angles: Sequence[np.ndarray], positions: np.ndarray) -> None:
        for number, each in enumerate(self.architecture.rotations):
            angle = positions[:, None].astype(np.float32) * each.frequencies
            for function, result in zip((np.cos, np.sin), angles[2 * number : 2 * number + 2], strict=True):
                function(angle, out=result)
                if each.factor != 1:
                    result *= np.float32(each.factor)

    def _set_masks(
        self, masks: Sequence[np.ndarray], owners: np.ndarray, positions: np.ndarray, past: int
    ) -> None:
        """What is added to scores of cached and of new keys: 0 for those that a token reads."""
        keys = (self.pool.owner[:past], self.pool.position[:past]), (owners, positions)
        for number, window in enumerate(window_sizes(self.architecture)):
            for mask, (owner, position) in zip(masks[2 * number : 2 * number + 2], keys, strict=True):
                hidden = owner != owners[:, None]
                hidden |= position > positions[:, None]
                if window is not None:
                    hidden |= position <= positions[:, None] - window
                np.multiply(hidden, _MASKED, out=mask)

    def _store(self, rows: Sequence[tuple[Text, list[int]]], fresh: Sequence[np.ndarray]) -> None:
        """Puts new keys and values at free places."""
        places: list[int] = []
        for text, some in rows:
            begin = text.read - len(some)
            if self._widest is not None:
                self._forget(text, text.read - self._widest)
            taken = self.pool.take(id(text), range(begin, text.read))
            text.places += taken
            places += taken
        views = self.pool.views(self.pool.past)
        for cached, added in zip(views, fresh, strict=True):
            if len(places) == 1:  # several times faster
                cached[:, places[0]] = added[:, 0]
            else:
                cached[:, places] = added

    def _forget(self, text: Text, before: int) -> None:
        """Frees the places of positions that no later token reads."""
        old = [place for place in text.places if self.pool.position[place] < before]
        if old:
            text.places = [place for place in text.places if self.pool.position[place] >= before]
            self.pool.release(old)
