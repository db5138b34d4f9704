"""Markdown helpers: tables, links, headings."""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


def cell(text: object) -> str:
    """Return a text as one table cell: on one line, with escaped bars outside of code."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"\s+", " ", str(text)).strip())
    return "".join(p if p.startswith("`") else p.replace("|", "\\|") for p in parts) or "–"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(map(cell, row)) + " |"


def first_paragraph(docstring: str | None) -> str:
    return re.sub(r"\s+", " ", (docstring or "").strip().split("\n\n")[0])


def prose(text: str) -> str:
    """Escape Markdown markup in a docstring, except in code spans."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part
        if part.startswith("`")
        else re.sub(r"([*_\[\]{}])", r"\\\1", escape(part, quote=False))
        for part in parts
    )


def paper_links(text: str) -> str:
    """Return links to the arXiv numbers in a text."""
    return ", ".join(
        f"[arXiv:{number}](https://arxiv.org/abs/{number})"
        for number in dict.fromkeys(ARXIV.findall(text))
    )


def fold(summary: str, text: str, length: int = 60) -> str:
    """Return a text, folded under its summary if it is longer than `length`."""
    plain = re.sub(r"\]\([^)]*\)", "]", text)
    return (
        text if len(plain) <= length else f"<details><summary>{summary}</summary>{text}</details>"
    )


def slug(heading: str) -> str:
    """Return the anchor of a heading, in the format of Markdown's table of contents."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
