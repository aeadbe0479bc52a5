"""Splits the text of pipelines and options at separators outside brackets."""

from __future__ import annotations


def split_commas(text: str) -> list[str]:
    """The parts between commas that are outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def split_words(text: str) -> list[str]:
    """The words of a text; spaces in brackets and quotes do not separate words."""
    words, word, depth, quote = list[str](), "", 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += (character in "{[<(") - (character in "}]>)") if not quote else 0
        if character.isspace() and not depth and not quote:
            words.append(word)
            word = ""
        else:
            word += character
    return [found for found in (*words, word) if found]
