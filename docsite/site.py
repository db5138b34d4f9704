"""All pages in one directory: handwritten pages, with adapted links, and generated pages."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from weft.families import families

from .choices import choices_page
from .course import detection_pictures, expand_course, trained_pictures
from .families import families_page, family_page
from .recipes import recipe_page
from .reference import PAGES, api_page, cli_page, module_page
from .tasks import extension_examples, tasks_table
from .usage import ROOT, recipe_files

# Pages of the repository root -> their path on the site.
MOVED = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
# `<!-- include: NAME -->` in a page is replaced by the lines of this function.
INCLUDES: dict[str, Callable[[], Iterator[str]]] = {
    "tasks": tasks_table,
    "extension": extension_examples,
    "trained": trained_pictures,
    "detection": detection_pictures,
}


def site_link(target: str) -> str:
    """Return the target on the site of a link in docs/: recipes and examples have their own
    pages.
    """
    path, hash_sign, anchor = target.partition("#")
    name = path.removeprefix("../")
    if name in MOVED:
        path = MOVED[name]
    elif match := re.fullmatch(r"(?:\.\./)+recipes/(\w+)\.py", path):
        path = f"recipe/{match[1]}.md"
    elif re.match(r"(?:\.\./)+examples/extend", path):
        path = "extension.md"
    elif re.fullmatch(r"(?:\.\./)+README\.md", path):
        path = "index.md"
    elif re.fullmatch(r"(?:\.\./)+src/weft/families", path):
        path = "families/index.md"
    elif match := re.fullmatch(r"(?:\.\./)+src/weft/(\w+)", path):
        path = f"reference/{match[1]}.md"
    elif path == "results":
        path = "results.md"
    return path + hash_sign + anchor


def with_site_links(text: str) -> str:
    return re.sub(r"(?<=\]\()([^)\s]+)(?=\))", lambda match: site_link(match[1]), text)


def with_includes(text: str) -> str:
    return re.sub(r"<!-- include: (\w+) -->", lambda match: "\n".join(INCLUDES[match[1]]()), text)


def root_page(name: str) -> str:
    """Return a page of the repository root, with links relative to docs/."""
    text = (ROOT / name).read_text()
    return re.sub(
        r"(?<=\]\()(?!https?:|#|mailto:)([^)\s]+)(?=\))",
        lambda match: (
            match[1].removeprefix("docs/") if match[1].startswith("docs/") else f"../{match[1]}"
        ),
        text,
    )


def generated_pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every generated page."""
    yield "choices.md", choices_page()
    yield "families/index.md", families_page()
    for family in families():
        yield f"families/{family.name}.md", family_page(family)
    for path in recipe_files():
        yield f"recipe/{path.stem}.md", recipe_page(path)
    yield "reference/cli.md", cli_page()
    yield "reference/api.md", api_page()
    for name in PAGES:
        yield f"reference/{name}.md", module_page(name)


def handwritten_pages() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = with_includes(with_site_links(path.read_text()))
        yield path.name, expand_course(text) if path.stem == "course" else text
    for name, place in MOVED.items():
        yield place, with_site_links(root_page(name))


def all_pages() -> dict[str, str]:
    """Return the text of every page by path."""
    return dict((*handwritten_pages(), *generated_pages()))


def write_site(folder: Path) -> dict[str, str]:
    """Write all pages, pictures and receipts; return the pages."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md"))
    pages = all_pages()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return pages


def site_settings() -> str:
    """Return zensical.toml with all families in the navigation."""
    first = '{ "All families" = "families/index.md" },\n'
    rows = "".join(f'      {{ "{f.name}" = "families/{f.name}.md" }},\n' for f in families())
    return (ROOT / "zensical.toml").read_text().replace(first, first + rows)
