"""Documentation: code runs, commands parse, links resolve, and generated tables are current."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from docsite.choices import PLACEMENTS, choices_by_section, choices_page
from docsite.course import topics
from docsite.links import anchors, broken_links
from docsite.measured import MEASURED, ROOT
from docsite.reference import cli_page, stub_names, verbs
from docsite.site import INCLUDES, all_pages, site_settings

import weft
from weft.cli import parse_arguments
from weft.families import family_names
from weft.support.registry import CHOICES

OURS = [choice for choice in CHOICES.values() if choice.__module__.startswith("weft.")]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *PAGES]
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n+)?^( *)```(\w*)[^\n]*\n(.*?)^\2```$", re.M | re.S)
# What may stand before a command's own name: a launcher, or the other end of a pipe.
LAUNCHERS = (
    "cd",
    "eval",
    "export",
    "git",
    "kubectl",
    "pip",
    "printf",
    "sbatch",
    "source",
    "torchrun",
)


def blocks(path: Path) -> list[tuple[str, str, str]]:
    """Return (reason why it is not run, language, text) of every code block of a page."""
    return [(m[1] or "", m[3], m[4]) for m in BLOCK.finditer(path.read_text())]


def python_pages() -> list[Path]:
    return [
        page
        for page in PAGES
        if any(language == "python" and not skipped for skipped, language, _ in blocks(page))
    ]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `runs/first_run`, two steps of a tiny model, which pages name."""
    folder = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("text.txt").write_text("def build(spec): return spec\n" * 40)
        recipe = weft.load_recipe(str(ROOT / "recipes/first_run.py"), ["steps=2"])
        recipe = weft.replace_path(recipe, "data.train.paths", ("text.txt",))
        recipe = weft.replace_path(recipe, "data.valid", None)
        for _ in weft.train(recipe, weft.prepare(recipe.data), "runs/first_run"):
            pass
    return folder


@pytest.mark.parametrize("page", python_pages(), ids=lambda page: page.name)
def test_every_python_block_of_a_page_runs_in_its_order(
    page: Path, small_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_run)
    registered = dict(CHOICES)
    namespace: dict[str, object] = {}
    try:
        for skipped, language, text in blocks(page):
            if language == "python" and not skipped:
                exec(compile(text, page.name, "exec"), namespace)  # noqa: S102
    finally:
        for name in CHOICES.keys() - registered.keys():  # a page's own parts end with it
            del CHOICES[name]


def command_lines() -> list[str]:
    """Return every line of the blocks that show commands, of pages and of what is at the root,
    joined where it continues.
    """
    texts = [
        t for path in TEXTS for _, language, t in blocks(path) if language in ("sh", "console")
    ]
    lines = "\n".join(texts).replace("\\\n", " ").splitlines()
    return sorted({line.strip() for line in lines if line.strip() and not line.startswith("#")})


@pytest.mark.parametrize("line", command_lines())
def test_every_command_of_a_page_is_one_that_can_be_typed(line: str) -> None:
    *_, command = line.split(" | ")
    words = shlex.split(command, comments=True)
    if words[0] == "torchrun":  # what it launches is the command
        words = ["weft", *words[words.index("weft") + 1 :]]
    if words[0] == "weft":
        parse_arguments(words[1:])
    elif words[:2] == ["python", "-m"]:
        assert (ROOT / f"{words[2].replace('.', '/')}.py").is_file() or (ROOT / words[2]).is_dir()
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), words[1]
    else:
        assert words[0] in LAUNCHERS or (ROOT / words[0]).is_file(), words[0]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_a_code_block_names_a_language_that_is_checked(path: Path) -> None:
    assert {language for _, language, _ in blocks(path)} <= {"python", "sh", "console", "text"}


# The site


@pytest.fixture(scope="module")
def site() -> dict[str, str]:
    return all_pages()


def test_no_link_of_the_site_leads_nowhere(site: dict[str, str]) -> None:
    assert list(broken_links(site, ROOT / "docs")) == []


def test_no_link_leads_nowhere_in_a_clone() -> None:
    pages = {page.name: page.read_text() for page in PAGES}
    assert list(broken_links(pages, ROOT / "docs")) == []
    root = {path.name: path.read_text() for path in TEXTS if path.parent == ROOT}
    pages_from_root = {f"docs/{name}": text for name, text in pages.items()}
    assert list(broken_links(root | pages_from_root, ROOT)) == []


def test_a_missing_page_file_or_heading_is_a_broken_link() -> None:
    pages = {
        "a.md": "# A\n\n[x](b.md) [y](#no) [z](c.md#one-two) [w](c.md#two)",
        "c.md": "# One: two",
    }
    assert list(broken_links(pages, ROOT)) == ["a.md: b.md", "a.md: #no", "a.md: c.md#two"]
    assert anchors("# One\n## `Two` (x)\n# One\n") == {"one", "two-x", "one_1"}


def test_every_choice_family_verb_and_public_name_has_its_place(site: dict[str, str]) -> None:
    sections = [choice for choices in choices_by_section().values() for choice in choices]
    assert sorted(c.__name__ for c in sections) == sorted(CHOICES)
    for name, choice in CHOICES.items():
        if choice.__module__.startswith("weft."):  # other tests have choices of their own
            assert f"[`{name}`]" in site["choices.md"]
    assert {f"families/{name}.md" for name in family_names()} <= site.keys()
    assert all(f"## weft {name}\n" in site["reference/cli.md"] for name in verbs())
    public = [name for room, names in stub_names().items() for name in names if room == "api"]
    assert all(f"### weft.{name}\n" in site["reference/api.md"] for name in public)


def test_every_choice_has_a_description() -> None:
    assert [c.__name__ for c in OURS if not c.__doc__] == []


def test_a_part_of_a_users_own_appears_in_the_table_of_choices() -> None:
    class MyNorm(weft.Norm):
        """x."""

    weft.register(MyNorm)
    try:
        norms = choices_page().partition("## Norms")[2].partition("## Norm placement")[0]
        assert "`MyNorm`" in norms
    finally:
        del CHOICES["MyNorm"]


def test_every_measured_effect_names_a_choice() -> None:
    assert MEASURED.keys() <= CHOICES.keys() | PLACEMENTS.keys()


def test_every_option_of_a_verb_is_on_the_page_of_the_command_line() -> None:
    page = cli_page()
    for verb in verbs().values():
        for action in verb._actions:
            assert all(
                f"`{option}`" in page
                for option in action.option_strings
                if option != "-h" and option != "--help"
            )


def test_every_page_is_in_the_navigation_once(site: dict[str, str]) -> None:
    named = re.findall(r'= "([\w/-]+\.md)"', site_settings())
    assert len(named) == len(set(named))
    pages = {name for name in site if not name.startswith("recipe/")}
    assert {*named} == pages, "name it under nav in zensical.toml"


def included() -> Iterator[str]:
    for page in PAGES:
        yield from re.findall(r"<!-- include: (\w+) -->", page.read_text())


def test_every_include_exists_and_is_used() -> None:
    assert set(included()) == INCLUDES.keys()


def test_the_course_names_every_topic_of_the_lectures() -> None:
    rows = re.findall(r"^\|.*\| ([A-H][\dA-H, ]*) \|$", (ROOT / "docs/course.md").read_text(), re.M)
    assert {number for row in rows for number in row.split(", ")} == topics().keys()


def test_the_code_of_every_family_page_runs(
    site: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in family_names():
        (text,) = (m[4] for m in BLOCK.finditer(site[f"families/{name}.md"]) if m[3] == "python")
        exec(compile(text, name, "exec"), {})  # noqa: S102
        assert capsys.readouterr().out.startswith("Spec\n")


# The release


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/release as a module, with a project of its own at version 1.2.0."""
    loader = SourceFileLoader("release", str(ROOT / "scripts/release"))
    module = module_from_spec(spec_from_loader("release", loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [1.2.0] - 2026-01-31\n\n## [1.1.0] - …\n"
    )
    (tmp_path / "CITATION.cff").write_text("type: software\nversion: 1.2.0\nlicense: x\n")
    answers = {"tag": "v1.2.0", "status": ""}
    module.ROOT = tmp_path
    module.run = lambda _, verb, *rest: answers[verb]
    module.answers = answers
    return module


def test_a_release_needs_version_changelog_citation_and_tag_to_agree(release: ModuleType) -> None:
    assert list(release.disagreements("1.2.0")) == []
    assert len(list(release.disagreements("1.3.0"))) == 3
    release.answers.update(tag="v1.1.0", status=" M README.md")
    assert ["tag" in line for line in release.disagreements("1.2.0")] == [True, False]


def test_a_bill_of_materials_names_no_file_of_this_machine(release: ModuleType) -> None:
    here = {"url": "file:///home/me/weft.whl"}
    there = {"url": "https://pypi.org/project/torch"}
    bill = {
        "components": [{"name": "weft", "externalReferences": [here, there]}, {"name": "torch"}]
    }
    cleaned = json.loads(release.without_local_files(json.dumps(bill)))
    assert [c["externalReferences"] for c in cleaned["components"]] == [[there], []]


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {weft.__version__}\n" in (ROOT / "CITATION.cff").read_text()
