"""Affinities as texts, and how they are joined and compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.artifact.device_flags import parse_alternative, print_alternative
from motet.artifact.schema import Alternative, Link
from motet.compiler.ir.devices import (
    ANY_QUEUE,
    Affinity,
    executable_with,
    join_and,
    join_or,
    parse_affinity,
    parse_link,
    print_link,
)
from motet.errors import OptionError


def affinity(text: str) -> Affinity | None:
    return parse_affinity(text) if text else None


@pytest.mark.parametrize(("left", "right", "either"), [
    ("a", "a", "a"),
    ("a", "b", "a|b"),
    ("b", "a", "b|a"),
    ("a[0]", "a[2]", "a[0,2]"),
    ("a[0]", "a", "a"),
    ("a|b", "b|c", "a|b|c"),
    ("a[1]|b[2]", "b[3]", "a[1]|b[2,3]"),
    ("", "a", "a"),
    ("a", "", "a"),
])
def test_either_of_two(left: str, right: str, either: str):
    assert str(join_or(affinity(left), affinity(right))) == either


@pytest.mark.parametrize(("left", "right", "both"), [
    ("a", "a", "a"),
    ("a", "b", ""),
    ("a[0,1]", "a[1,2]", "a[1]"),
    ("a[0]", "a[1]", ""),
    ("a|b", "b|c", "b"),
    ("a|b[0]", "b[1]|a[3]", "a[3]"),
    ("", "a[1]", "a[1]"),
    ("a[1]", "", "a[1]"),
])
def test_both_of_two(left: str, right: str, both: str):
    joined = join_and(affinity(left), affinity(right))
    assert ("" if joined is None else str(joined)) == both


@pytest.mark.parametrize(("left", "right", "can"), [
    ("a", "a", True),
    ("a", "b", False),
    ("a[1]", "a", True),
    ("a", "a[1]", False),
    ("a[1]", "a[0,1]", True),
    ("a[1,2]", "a[0,1]", False),
    ("a|b", "a", False),
    ("a|b", "b|a|c", True),
    ("a", "", True),
    ("", "a", True),
])
def test_one_runs_as_part_of_another(left: str, right: str, can: bool):
    assert executable_with(affinity(left), affinity(right)) is can


_names = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$.-]{0,5}", fullmatch=True)
_terms = st.tuples(_names, st.integers(1, ANY_QUEUE))
_affinities = st.lists(_terms, min_size=1, max_size=4, unique_by=lambda term: term[0]).map(
    lambda terms: Affinity(tuple(terms))
)


@given(_affinities)
def test_what_is_printed_is_read(value: Affinity):
    assert parse_affinity(str(value)) == value


@given(_affinities, _affinities)
def test_each_is_part_of_either_and_both_is_part_of_each(left: Affinity, right: Affinity):
    either = join_or(left, right)
    assert executable_with(left, either) and executable_with(right, either)
    both = join_and(left, right)
    assert both is None or (executable_with(both, left) and executable_with(both, right))


@pytest.mark.parametrize("text", ["", "a[", "a[64]", "a[]", "a||b", "1a", "a b", "@a", "a[-1]", "a[x]"])
def test_what_is_no_affinity(text: str):
    with pytest.raises(ValueError, match="expected"):
        parse_affinity(text)


@pytest.mark.parametrize("alternative", [
    Alternative("cuda"), Alternative("host", 0), Alternative("", 7), Alternative(fallback="my.dev-1"),
])
def test_alternatives_are_read_as_they_are_printed(alternative: Alternative):
    assert parse_alternative(print_alternative(alternative)) == alternative


@pytest.mark.parametrize("text", ["", "cuda[", "cuda[x]", "@", "cuda]", "a b", "@a[1]", "[]"])
def test_what_is_no_alternative(text: str):
    with pytest.raises(OptionError, match="expected"):
        parse_alternative(text)


@pytest.mark.parametrize("link", [
    Link("a", "b"), Link("a", "b", True), Link("a", "b", False, True), Link("my-a", "b.c", True, True),
])
def test_links_are_read_as_they_are_printed(link: Link):
    assert parse_link(print_link(link)) == link


@pytest.mark.parametrize("text", ["", "a->", "a-b", "a->b:fast", "a->b->c"])
def test_what_is_no_link(text: str):
    with pytest.raises(ValueError, match="expected"):
        parse_link(text)
