"""Types are decoded for the first time by several threads at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import motet

PROGRAM = """
import dataclasses, gc, sys, threading
from typing import Any
import msgspec
from motet.decoding import convert, decode_json, decode_msgpack

gc.set_threshold(1, 1, 1)
sys.setswitchinterval(1e-6)
fields = [(f"field{number}", "list[str]") for number in range(12)]
content = {"items": [{name: ["text"] for name, _ in fields}]}
json, packed = msgspec.json.encode(content), msgspec.msgpack.encode(content)
for number in range(40):
    Item = dataclasses.make_dataclass("Item", fields) if number % 2 else msgspec.defstruct("Item", fields)
    Whole = msgspec.defstruct("Whole", [("items", list[Item])])
    ways = [lambda: decode_json(json, Whole), lambda: decode_msgpack(packed, Whole), lambda: convert(content, Whole)]
    begin = threading.Barrier(len(ways))

    def one(way: Any) -> None:
        begin.wait()
        assert way().items[0].field11 == ["text"]

    threads = [threading.Thread(target=one, args=[way]) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_decode_new_types_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_types_are_given_to_the_decoders_that_threads_share() -> None:
    sources = Path(motet.__file__).parent.rglob("*.py")
    own = re.compile(r"msgspec\.(json\.|msgpack\.)?(decode\(.*type=|convert\()")
    found = [file.name for file in sources if own.search(file.read_text())]
    assert found == ["decoding.py"]
