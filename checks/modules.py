"""The table of all packages and modules, generated from their docstrings.

    python -m checks.modules [--write build/modules.md]

Each package is a section, each of its modules a row with the first paragraph of its docstring. Without `--write` the
page is printed.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from checks.structure import ROOT, Module, read_modules

PACKAGE = "motet"
_HEAD = """\
# Modules

The packages and modules of `src/motet`, generated from their docstrings by `python -m checks.modules`.
[`architecture.md`](architecture.md) describes how they work together.
"""


def render_page(modules: Sequence[Module]) -> str:
    """The page of `modules`, as Markdown."""
    sections: dict[str, list[Module]] = defaultdict(list)
    for module in modules:
        sections[package_of(module)].append(module)
    return "".join([_HEAD, *(text for name in sorted(sections) for text in _section(name, sections[name]))])


def package_of(module: Module) -> str:
    """The name of the package that a module is in; a package is in itself."""
    return module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]


def summary(module: Module) -> str:
    """The first paragraph of a module's docstring, on one line; "" if it has none."""
    paragraph = (ast.get_docstring(module.tree) or "").split("\n\n")[0]
    return " ".join(paragraph.split()).removesuffix(":")


def _section(name: str, modules: Sequence[Module]) -> Iterator[str]:
    folder = name.removeprefix(PACKAGE).lstrip(".").replace(".", "/")
    rows = [module for module in modules if module.path.name != "__init__.py"]
    about = "".join(summary(module) for module in modules if module.path.name == "__init__.py")
    if not rows and not about:
        return
    yield f"\n## {f'{folder}/' if folder else 'The package'}\n"
    if about:
        yield about + "\n"
    if rows:
        yield "\n| module | contents |\n|---|---|\n"
    for module in rows:
        yield f"| `{module.path.name}` | {summary(module).replace('|', chr(92) + '|')} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page to FILE")
    file: Path | None = parser.parse_args().write
    page = render_page(read_modules(ROOT))
    if file is None:
        print(page, end="")
    else:
        file.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
