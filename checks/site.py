"""Builds the documentation as a site: `python -m checks.site build/site`.

The pages of docs/ are the source. README.md is the first page; the reference is generated, of the command line from
`--help`, of Python from docstrings. Links to files outside the site become text. Warnings are errors.
"""

# mkdocs is installed with the extra `docs` only.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from checks.modules import render_page
from checks.structure import read_modules

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("compile", "run", "bench", "devices", "inspect", "generate", "serve", "tune", "export", "c-library",
            "opt", "lab", "doctor", "new-device", "new-codegen", "completion")  # fmt: skip
API = {
    "motet": "compile and load", "motet.runtime.session": "sessions", "motet.runtime.function": "functions",
    "motet.artifact.reader": "artifacts", "motet.errors": "errors", "motet.builder": "programs in Python",
    "motet.onnxruntime": "onnxruntime's interface", "motet.runtime.device": "the contract of devices",
    "motet.runtime.timeline": "points and timelines", "motet.runtime.conformance": "the conformance suite",
}
# The navigation: guides by who reads them, then how Motet works, then notes.
GUIDES: dict[str, tuple[str, ...]] = {
    "Models": ("onnx", "pytorch", "jax", "huggingface", "llm", "openvino_models", "loops", "placement"),
    "In other programs": ("c_api", "c_export", "onnxruntime", "openvino", "serving", "concurrency", "hosts"),
    "Devices": ("cuda", "opencl", "intel", "accelerator", "embedded"),
    "Performance": ("lab", "schedules", "benchmarks"),
    "Device makers": ("devices", "codegen", "walks"),
    "How Motet works": (
        "architecture", "operators", "passes", "memory", "glossary", "modules", "testing", "conformance"),
}
PROJECT = ("changelog", "contributing", "security")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    output: Path = parser.parse_args().output.resolve()
    with tempfile.TemporaryDirectory(prefix="motet-docs-") as folder:
        source = Path(folder) / "docs"
        write_pages(source)
        return build(source, output)


def write_pages(source: Path) -> None:
    """Writes the pages of the site into a new folder."""
    shutil.copytree(ROOT / "docs", source)
    for name in PROJECT:
        shutil.copy(ROOT / f"{name.upper()}.md", source / f"{name}.md")
    front = (ROOT / "README.md").read_text("utf-8").replace("](docs/", "](")
    (source / "index.md").write_text(front, "utf-8")
    for page in source.rglob("*.md"):
        page.write_text(_without_outside_links(page, source), "utf-8")
    # Of docstrings, where [i][j] is an element and not a reference.
    (source / "modules.md").write_text(render_page(read_modules()).replace("][", "]\\["), "utf-8")
    for folder in ("commands", "python"):
        (source / folder).mkdir()
    for command in COMMANDS:
        text = f"# motet {command}\n\n```\n{help_of(command)}\n```\n"
        (source / "commands" / f"{command}.md").write_text(text, "utf-8")
    for module, title in API.items():
        (source / "python" / f"{module}.md").write_text(f"# {module}: {title}\n\n::: {module}\n", "utf-8")


def help_of(command: str) -> str:
    """What `motet COMMAND --help` prints."""
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT / "src")}
    arguments = [sys.executable, "-m", "motet", command, "--help"]
    return subprocess.run(arguments, check=True, text=True, capture_output=True, env=environment).stdout.rstrip()


def _without_outside_links(page: Path, source: Path) -> str:
    """A page whose links to files that the site lacks are text."""

    def shown(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if not target or "://" in target or (page.parent / target).is_file():
            return match[0]
        return text

    return _LINK.sub(shown, page.read_text("utf-8"))


def settings(source: Path, output: Path) -> dict[str, Any]:
    """mkdocs' configuration."""
    notes = sorted(path.stem for path in (source / "notes").glob("*.md"))
    listed = {page for pages in GUIDES.values() for page in pages}
    if left := {path.stem for path in source.glob("*.md")} - {*listed, *PROJECT, "index"}:
        raise SystemExit(f"error: checks/site.py: pages that no guide lists: {', '.join(sorted(left))}")
    return {
        "site_name": "Motet", "docs_dir": str(source), "site_dir": str(output), "strict": True,
        "theme": {"name": "material", "font": False, "features": ["navigation.indexes", "content.code.copy"],
                  "palette": [{"media": "(prefers-color-scheme: light)", "scheme": "default"},
                              {"media": "(prefers-color-scheme: dark)", "scheme": "slate"}]},
        "plugins": ["search", {"mkdocstrings": {"handlers": {"python": {
            "paths": [str(ROOT / "src")], "options": {"show_source": False, "show_root_heading": False},
        }}}}],
        "markdown_extensions": ["admonition", "pymdownx.superfences", {"toc": {"permalink": True}}],
        "nav": [
            {"Start here": "index.md"},
            *({title: [f"{page}.md" for page in pages]} for title, pages in GUIDES.items()),
            {"Reference": [{"Command line": [f"commands/{name}.md" for name in COMMANDS]},
                           {"Python": [f"python/{name}.md" for name in API]}]},
            {"Notes": [f"notes/{name}.md" for name in notes]},
            {"Project": [f"{name}.md" for name in PROJECT]},
        ],
    }  # fmt: skip


def build(source: Path, output: Path) -> int:
    """Builds the site; 1 with the reason if mkdocs warns."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    file = source.parent / "mkdocs.yml"
    file.write_text("", "utf-8")
    try:
        build_site(load_config(str(file), **settings(source, output)))
    except Abort as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{output}: {sum(1 for _ in output.rglob('*.html'))} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
