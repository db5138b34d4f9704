"""Broken links of the pages: missing files and missing headings."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from .markdown import slug

LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: one per heading, with a number if a heading repeats."""
    seen: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.M):
        name = slug(re.sub(r"[`*\\]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)))
        count = seen.get(name, 0)
        seen[name] = count + 1
        names.add(f"{name}_{count}" if count else name)
    return names


def broken_links(pages: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Yield `page: link` for every relative link without a target among the pages and files."""
    known = {name: anchors(text) for name, text in pages.items()}
    for page, text in pages.items():
        plain = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
        for target in LINK.findall(plain):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            name = (
                posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            )
            exists = name in known or (folder / name).exists()
            if not exists or (anchor and anchor not in known.get(name, set())):
                yield f"{page}: {target}"
