"""motet completion: scripts by which shells complete commands, options and devices."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from motet.errors import OptionError

HELP = """Print a script that completes motet's commands and options in a shell.

\b
Examples:
  motet completion bash >> ~/.bashrc
  motet completion zsh >> ~/.zshrc
  motet completion fish > ~/.config/fish/completions/motet.fish
"""
SHELLS = ("bash", "zsh", "fish", "powershell")
VARIABLE = "_MOTET_COMPLETE"  # set by the scripts when they ask for words


def print_script(shell: Annotated[str, typer.Argument(metavar="|".join(SHELLS), show_default=False)]) -> None:
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        raise OptionError(f"completion: no script for {shell!r}; expected one of {', '.join(SHELLS)}")
    typer.echo(get_completion_script(prog_name="motet", complete_var=VARIABLE, shell=shell))


def prepare_completion() -> None:
    """Lets this process answer a shell that asks for words."""
    if VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
