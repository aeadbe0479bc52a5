from collections.abc import Iterator

class Mark:
    line: int
    column: int

class YAMLError(Exception):
    problem: str | None
    problem_mark: Mark | None

class Event:
    start_mark: Mark
    anchor: str | None
    tag: str | None

class StreamEndEvent(Event): ...
class AliasEvent(Event): ...

class ScalarEvent(Event):
    value: str
    style: str | None

class SequenceStartEvent(Event): ...
class SequenceEndEvent(Event): ...
class MappingStartEvent(Event): ...
class MappingEndEvent(Event): ...

class SafeLoader: ...

def parse(stream: str, Loader: type[SafeLoader]) -> Iterator[Event]: ...  # noqa: N803 – as PyYAML names it
