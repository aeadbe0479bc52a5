"""The decorator `jit`: traces a function by JAX for the kinds of its arguments, and compiles StableHLO.

arguments → leaves of their pytrees → for each combination of structure, shapes, dtypes and static values: a session,
kept for later calls → one call → JAX arrays in the function's structure
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, TypeVar

import motet
from motet.argument_kinds import check_kind, count_of
from motet.errors import CallError, CompileError, OptionError
from motet.jax.arrays import argument_of, import_jax, result_of

_Options = Mapping[str, str | int | bool]
_T = TypeVar("_T", int, str)


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    devices: Mapping[str, str] | str | None = None,
    options: _Options | None = None,
    threads: int | None = None,
    kept: int = 64,
) -> Any:
    """Compile a function of JAX by Motet when it is called; `@jit`, or `@jit(static_argnums=1)`.

    The function is traced for each new combination of structures, shapes and dtypes of its arguments, and of the values
    of static ones, which are hashable and given by position or name as for `jax.jit`. `kept` combinations are kept,
    those used last. `devices` and `options` are those of `motet.compile`, `threads` that of `motet.load`. Raises
    OptionError for invalid options, and if JAX is not installed.
    """
    if function is None:
        return functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames, devices=devices,
                                 options=options, threads=threads, kept=kept)  # fmt: skip
    if not callable(function):
        raise OptionError(f"motet.jax.jit: {type(function).__qualname__} given; expected a function")
    kept = count_of("motet.jax.jit: kept", kept)
    static = _static_of(function, static_argnums, static_argnames)
    return CompiledFunction(function, static, FunctionSettings(devices, options, threads, kept))


@dataclass(frozen=True)
class FunctionSettings:
    """How functions are compiled and loaded."""

    devices: Mapping[str, str] | str | None
    options: _Options | None
    threads: int | None
    kept: int


@dataclass(frozen=True)
class StaticArguments:
    """The arguments whose values are part of the program."""

    positions: frozenset[int]
    names: frozenset[str]


@dataclass(frozen=True)
class _Specialised:
    """The program of one combination; `results` are the kinds of its results' leaves."""

    session: motet.Session
    kinds: list[Any]
    results: list[Any]
    structure: Any


class CompiledFunction:
    """A function of JAX that Motet computes; takes and returns what the function does. Thread-safe."""

    def __init__(self, function: Callable[..., Any], static: StaticArguments, settings: FunctionSettings) -> None:
        functools.update_wrapper(self, function)
        self._jax = import_jax()
        self._name = getattr(function, "__name__", type(function).__name__)
        self._static = static
        self._settings = settings
        self._jitted = self._jax.jit(function, static_argnums=sorted(static.positions) or None, keep_unused=True,
                                     static_argnames=sorted(static.names) or None)  # fmt: skip
        self._made: OrderedDict[Hashable, _Specialised] = OrderedDict()
        self._lock = RLock()  # a traced function may call itself

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Compute the function. Within a transformation of JAX, such as `jax.grad`, JAX computes it instead, with a
        warning. Raises CallError for arguments that JAX does not take, and CompileError for functions that cannot be
        traced or compiled."""
        leaves, structure = self._jax.tree.flatten(self._traced(arguments, named))
        if any(isinstance(leaf, self._jax.core.Tracer) for leaf in leaves):
            warnings.warn(f"{self._name}: JAX computes it, since it was called within a transformation of JAX",
                          stacklevel=2)  # fmt: skip
            return self._jitted(*arguments, **named)
        found = self._specialised(arguments, named, leaves, structure)
        given = [argument_of(leaf, kind, self._jax) for leaf, kind in zip(leaves, found.kinds, strict=True)]
        results = found.session(*given) if found.results else ()
        results = results if isinstance(results, (tuple, list)) else (results,)
        made = [result_of(result, kind, self._jax) for result, kind in zip(results, found.results, strict=True)]
        return self._jax.tree.unflatten(found.structure, made)

    @property
    def combinations(self) -> int:
        """How many combinations of arguments are kept."""
        return len(self._made)

    def _traced(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The arguments that are not static."""
        positions = {at % len(arguments) for at in self._static.positions if -len(arguments) <= at < len(arguments)}
        return (tuple(value for at, value in enumerate(arguments) if at not in positions),
                {name: value for name, value in named.items() if name not in self._static.names})

    def _specialised(
        self, arguments: tuple[Any, ...], named: dict[str, Any], leaves: list[Any], structure: Any
    ) -> _Specialised:
        kinds = self._kinds(arguments, named, leaves)
        count, positions, names = len(arguments), self._static.positions, self._static.names
        static = (tuple((type(value), value) for at, value in enumerate(arguments) if {at, at - count} & positions),
                  tuple((name, type(named[name]), named[name]) for name in sorted(named) if name in names))
        config = self._jax.config
        key = (structure, tuple(kinds), static, config.jax_enable_x64, config.jax_default_matmul_precision)
        try:
            hash(key)
        except TypeError as error:
            raise CallError(f"{self._name}: a static argument cannot be hashed: {error}; expected one that can, such "
                            "as a number, a string or a tuple") from None
        with self._lock:
            found = self._made.get(key)
            if found is None:
                found = self._made[key] = self._compiled(arguments, named, kinds)
                if len(self._made) > self._settings.kept:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
        return found

    def _kinds(self, arguments: tuple[Any, ...], named: dict[str, Any], leaves: list[Any]) -> list[Any]:
        """The abstract value of each leaf."""
        try:
            kinds = [self._jax.typeof(leaf) for leaf in leaves]
        except TypeError:
            for path, leaf in self._jax.tree_util.tree_leaves_with_path(self._traced(arguments, named)):
                try:
                    self._jax.typeof(leaf)
                except TypeError:
                    where = self._jax.tree_util.keystr(path[1:])
                    kind = type(leaf).__qualname__
                    raise CallError(f"{self._name}: argument {where}: {kind} given; expected arrays and numbers; make "
                                    "other arguments static: static_argnums, static_argnames") from None
            raise
        if any(self._jax.dtypes.issubdtype(kind.dtype, self._jax.dtypes.extended) for kind in kinds):
            raise CallError(f"{self._name}: a typed key given; expected an array of numbers: jax.random.key_data(key), "
                            "or a key of jax.random.PRNGKey")  # fmt: skip
        return kinds

    def _compiled(self, arguments: tuple[Any, ...], named: dict[str, Any], kinds: list[Any]) -> _Specialised:
        errors = self._jax.errors
        try:
            # as for a processor: programs for GPUs call libraries of JAX
            lowered = self._jitted.trace(*arguments, **named).lower(lowering_platforms=("cpu",))
            text = lowered.as_text()
        except (errors.JAXTypeError, errors.JAXIndexError) as error:
            why = str(error).partition("\n")[0].rstrip(". ")
            raise CompileError(f"{self._name}: JAX cannot trace it: {type(error).__name__}: {why}") from None
        results, structure = self._jax.tree.flatten(lowered.out_info)
        try:
            artifact = motet.compile(text, devices=self._settings.devices, options=self._settings.options)
        except CompileError as error:
            raise CompileError(f"{self._name}: {' '.join(str(error).split())}") from None
        return _Specialised(motet.load(artifact, threads=self._settings.threads), kinds, results, structure)


def _each(name: str, given: _T | Sequence[_T], kind: type[_T], expected: str) -> Sequence[_T]:
    """One value, or several. Raises OptionError for anything but values of `kind`."""
    if isinstance(given, kind):
        return [given]
    check_kind(f"motet.jax.jit: {name}", given, Iterable, expected)
    for value in given:
        check_kind(f"motet.jax.jit: {name}", value, kind, expected)
    return list(given)


def _static_of(
    function: Callable[..., Any], positions: int | Sequence[int], names: str | Sequence[str]
) -> StaticArguments:
    """Static arguments by position and by name: each parameter that is named one way is static the other way, too."""
    numbers = set(_each("static_argnums", positions, int, "a position of an argument, or several"))
    words = set(_each("static_argnames", names, str, "a name of an argument, or several"))
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return StaticArguments(frozenset(numbers), frozenset(words))
    kinds = inspect.Parameter
    by_position = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    plain = [one.name for one in parameters.values() if one.kind in by_position]
    open_ended = {one.kind for one in parameters.values()}
    for number in numbers:
        if kinds.VAR_POSITIONAL not in open_ended and not -len(plain) <= number < len(plain):
            raise OptionError(f"motet.jax.jit: static_argnums={number}; expected a position of {', '.join(plain)}")
    for word in words:
        if kinds.VAR_KEYWORD not in open_ended and word not in parameters:
            raise OptionError(f"motet.jax.jit: static_argnames={word!r}; expected one of {', '.join(parameters)}")
    numbers = {number + len(plain) if number < 0 and kinds.VAR_POSITIONAL not in open_ended else number
               for number in numbers}  # fmt: skip
    both = numbers | {at for at, name in enumerate(plain) if name in words}
    return StaticArguments(frozenset(both), frozenset(words | {plain[at] for at in numbers if 0 <= at < len(plain)}))
