"""The command line: every command, its JSON, and its error messages."""

import ast
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft import spec as S
from weft.cli import main, parse_arguments
from weft.commands import models
from weft.families import families, family
from weft.spec import describe
from weft.support import console
from weft.support.value_tree import fold_repeats

ALL = [(f, size) for f in families() for size in f.sizes]
NORM = S.LayerNorm()
RMS = S.RMSNorm()
LOOK = S.Attention(heads=4)
FEED = S.MLP(hidden=64)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("folders")
    model = weft.build(
        weft.bert(depth=2, width=32, heads=4, hidden=64, vocab_size=64, positions=16)
    )
    weft.save(model, root / "hf")
    weft.save(model, root / "own", to="weft")
    for name in ("empty", "other", "settings"):
        (root / name).mkdir()
    (root / "other" / "diary.txt").write_text("dear diary")
    (root / "settings" / "config.json").write_text("{}")
    (root / "file").write_text("")
    return {p.name: str(p) for p in root.iterdir()}


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


# families


def test_help_and_version_exit_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["--help"],
        ["--version"],
        ["families", "--help"],
        ["show", "-h"],
        ["verify", "-h"],
        ["export", "-h"],
    ):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 0
    assert f"weft {weft.__version__}\n" in capsys.readouterr().out


def test_help_as_a_verb_answers_as_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    for words, option in ((["help"], ["--help"]), (["help", "show"], ["show", "--help"])):
        pages = []
        for arguments in (words, option):
            with pytest.raises(SystemExit) as left:
                main(arguments)
            assert left.value.code == 0
            pages.append(capsys.readouterr().out)
        assert pages[0] == pages[1]
    assert main(["help", "trian"]) == 2
    assert "unknown command 'trian'; did you mean 'train'" in capsys.readouterr().err


def test_no_verb_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(verb in printed(capsys) for verb in ("families", "show", "verify", "export"))


def test_families_lists_every_size_and_paper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = printed(capsys, "families").split()
    for f in families():
        assert {f.name, *f.sizes, f.paper.split()[0]} <= set(words)
    assert "110M," in words


def test_families_counts_every_preset_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        row["family"]: row["sizes"] for row in json.loads(printed(capsys, "families", "--json"))
    }
    assert found == {
        f.name: {size: f(size).parameter_count() for size in f.sizes} for f in families()
    }


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (4_416_698, "4.42M"),
        (109_514_298, "110M"),
        (999_600_000, "1B"),
        (174_604_259_328, "175B"),
    ],
)
def test_sizes_are_named_with_three_digits(number: int, text: str) -> None:
    assert describe.short(number) == text


# show


@pytest.mark.parametrize("columns", [80, 140])
def test_no_page_is_wider_than_the_screen(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in ("families", *(f.name for f in families())):
        text = printed(capsys, *(["families"] if name == "families" else ["show", name]))
        assert max(map(len, text.splitlines())) <= columns
        assert "…" not in text


def test_show_prints_bert_as_its_paper_draws_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(capsys, "show", "bert-base")
    for line in (
        "12 × block",
        "7,087,872 each",
        "30522 × 768",
        "12 heads of 64, full",
        "  x <- LayerNorm(x + Attention(x))\n",
        "  x <- LayerNorm(x + MLP(x))\n",
        "109,514,298 parameters",
        "FLOPs forward for 512 tokens",
    ):
        assert line in text


@pytest.mark.parametrize(("given", "used"), [(None, "passive"), ("active", "active")])
def test_waiting_threads_sleep_by_default(given: str | None, used: str) -> None:
    code = "import os; from weft import cli; cli.main(); print(os.environ['OMP_WAIT_POLICY'])"
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": given} if given else {}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == used


def test_show_and_missing_files_need_no_torch(tmp_path: Path) -> None:
    """One process for all: most of its time is the imports."""
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    missing = ["evaluate x --data none", "evaluate x --few-shot none", "classify x -i none"]
    missing += ["tune x --data none", "tune x --data a.csv --valid none", "tune x/y/z --data a.csv"]
    missing += ["status none", "resume none", "resume none --verify", "evaluate ./none"]
    code = f"""
import sys
from weft.cli import main
assert main(["show", "gpt3-175b"]) == 0
for line in {missing}:
    assert main(line.split()) == 2, line
    assert "torch" not in sys.modules, line
"""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("none") >= len(missing) - 1


@pytest.mark.parametrize(
    "name",
    ["bert-base", "gpt3-175b", "llama-3.2-1b", "t5_v1_1-small", "detr-resnet-50", "swin-tiny"],
)
def test_show_json_holds_the_spec_and_its_cost(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(printed(capsys, "show", name, "--json"))
    first, _, size = name.partition("-")
    spec = family(first)(size)
    assert S.from_plain(found["spec"]) == spec
    assert (found["name"], found["parameters"], found["flops"]) == (
        name,
        spec.parameter_count(),
        spec.flops(length=found["length"]),
    )


def test_a_family_alone_is_its_first_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "show", "bert") == printed(capsys, "show", "bert-base")


@pytest.mark.parametrize("folder", ["hf", "own"])
def test_show_reads_folders_of_both_layouts(
    folder: str, folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(printed(capsys, "show", folders[folder], "--json"))
    assert S.from_plain(found["spec"]).width == 32
    assert "2 × block" in printed(capsys, "show", folders[folder])


@pytest.mark.parametrize(("f", "size"), ALL, ids=[f"{f.name}-{s}" for f, s in ALL])
def test_the_tree_adds_up(f: Any, size: str) -> None:
    def added(part: describe.TreeLine) -> int:
        each = sum(map(added, part.children)) if part.children else part.parameters
        times = int(part.name.split(" × ")[0]) if " × " in part.name else 1
        assert part.parameters == times * each
        return part.parameters

    spec = f(size)
    assert added(describe.model_tree("", spec)) == spec.parameter_count()


@pytest.mark.parametrize(
    ("block", "lines"),
    [
        (
            S.Block(
                attention=S.pre_norm(RMS, LOOK), feedforward=S.pre_norm(RMS, S.GatedMLP(hidden=64))
            ),
            ["x <- x + Attention(RMSNorm(x))", "x <- x + GatedMLP(RMSNorm(x))"],
        ),
        (
            S.Block(attention=S.post_norm(NORM, LOOK), feedforward=S.post_norm(NORM, FEED)),
            ["x <- LayerNorm(x + Attention(x))", "x <- LayerNorm(x + MLP(x))"],
        ),
        (
            S.Block(
                attention=S.sandwich_norm(RMS, LOOK),
                feedforward=S.sandwich_norm(
                    RMS, S.MixtureOfExperts(experts=4, top_k=2, expert=FEED)
                ),
            ),
            [
                "x <- x + RMSNorm(Attention(RMSNorm(x)))",
                "x <- x + RMSNorm(MixtureOfExperts(RMSNorm(x)))",
            ],
        ),
        (
            S.Block(
                attention=S.deepnorm_branch(NORM, LOOK, S.deepnorm_scales("encoder", 12)),
                feedforward=S.deepnorm_branch(NORM, FEED, S.deepnorm_scales("encoder", 12)),
            ),
            ["x <- LayerNorm(x * 2.213 + Attention(x))", "x <- LayerNorm(x * 2.213 + MLP(x))"],
        ),
        (
            S.Block(
                attention=S.pre_norm(NORM, LOOK),
                cross_attention=S.pre_norm(NORM, LOOK),
                feedforward=S.pre_norm(NORM, FEED),
            ),
            [
                "x <- x + Attention(LayerNorm(x))",
                "x <- x + Attention(LayerNorm(x), encoder)",
                "x <- x + MLP(LayerNorm(x))",
            ],
        ),
        (
            S.Block(
                attention=S.post_norm(NORM, LOOK),
                cross_attention=S.post_norm(NORM, LOOK),
                feedforward=S.Branch(inner=FEED),
            ),
            [
                "x <- LayerNorm(x + Attention(x))",
                "x <- LayerNorm(x + Attention(x, encoder))",
                "x <- x + MLP(x)",
            ],
        ),
        (
            S.ParallelBlock(attention=S.pre_norm(NORM, LOOK), feedforward=S.pre_norm(NORM, FEED)),
            ["x <- x + Attention(LayerNorm(x)) + MLP(LayerNorm(x))"],
        ),
    ],
    ids=["pre", "post", "sandwich", "deep", "cross", "post-cross", "parallel"],
)
def test_a_block_is_drawn_as_its_equation(block: Any, lines: list[str]) -> None:
    assert list(describe.block_equation(block)) == lines


def test_every_head_and_input_has_words() -> None:
    heads = (
        S.LMHead(tied=False),
        S.ClassifierHead(num_labels=1),
        S.ClassifierHead(num_labels=2, pooling="mean"),
        S.TokenClassifierHead(num_labels=3),
        S.SpanHead(),
        S.NoHead(),
        S.DetectionHead(num_labels=91),
    )
    assert all(head.describe() for head in heads)
    assert (
        describe.describe_input(
            S.SharedTokens(positions=S.SinusoidalPositions(), embedding_scale=8.0)
        )
        == "the source's tokens, sinusoids, scaled by 8"
    )


@pytest.mark.parametrize(
    ("items", "folded"),
    [
        ("aaaa", [(4, "a")]),
        ("abab", [(2, "ab")]),
        ("aab", [(2, "a"), (1, "b")]),
        ("cabbabb", [(1, "c"), (2, "abb")]),
        ("", []),
    ],
)
def test_repeated_patterns_are_folded(items: str, folded: list[tuple[int, str]]) -> None:
    assert fold_repeats(items) == folded


# verify


def test_verify_finds_the_same_outputs_in_transformers(
    folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "verify", folders["hf"])
    assert "logits" in text
    assert text.endswith("equal within 1e-05\n")


@pytest.mark.parametrize(("difference", "told"), [(1e-3, 1e-3), (math.nan, None)])
def test_verify_exits_with_one_if_an_output_differs(
    difference: float,
    told: float | None,
    folders: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from weft.interop.huggingface import verify

    monkeypatch.setattr(
        verify, "verify", lambda where: {"last_hidden_state": 1e-7, "logits": difference}
    )
    assert printed(capsys, "verify", folders["hf"], code=1).endswith("different within 1e-05\n")
    found = json.loads(printed(capsys, "verify", folders["hf"], "--json", code=1))
    assert (found["same"], found["differences"]) == (
        False,
        {"last_hidden_state": 1e-7, "logits": told},
    )


# export


def test_convert_round_trip_is_unchanged(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "written" in printed(
        capsys, "export", folders["hf"], str(tmp_path / "own"), "--to", "weft"
    )
    found = json.loads(
        printed(
            capsys, "export", str(tmp_path / "own"), str(tmp_path / "hf"), "--to", "hf", "--json"
        )
    )
    assert found["read"] | {"files": None} == {
        "folder": str(tmp_path / "own"),
        "layout": "weft",
        "family": None,
        "parameters": 20960,
        "files": None,
    }
    assert (found["written"]["family"], sorted(found["written"]["files"])) == (
        "bert",
        ["config.json", "model.safetensors"],
    )
    before, after = (weft.load(folder).state_dict() for folder in (folders["hf"], tmp_path / "hf"))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_convert_writes_over_an_older_model_folder(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(capsys, "export", folders["hf"], str(tmp_path), "--to", "weft")
    printed(capsys, "export", folders["hf"], str(tmp_path), "--to", "hf", "--overwrite")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


# Mistakes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("famlies", "unknown command 'famlies'; did you mean 'families'?"),
        ("train x.py --set steps 5", "give --set steps=5"),
        (
            "train x.py --set steps=5 seed=1",
            "seed=1: give --set before each change: --set seed=1",
        ),
        ("prepare --data x.csv", "takes files as positional arguments; remove --data"),
        ("--nope", "the command has no option '--nope'; available: --help, --version"),
        ("families --jsn", "did you mean '--json'?"),
        ("families bert", "families does not take 'bert'"),
        ("show", "NAME; see weft show --help"),
        ("show brt-base", "did you mean 'bert-base'?"),
        ("show bert-bas", "did you mean 'bert-base'?"),
        ("show BERT-Base", "did you mean 'bert-base'?"),
        ("show gpt-neox-20b", "did you mean 'gpt_neox-20b'?"),
        ("show llama-3.2-1", "did you mean 'llama-3.2-1b'?"),
        ("show bert-", "did you mean"),
        ("show 12345", "'12345' is not a family, a preset or a directory; see weft families"),
        ("show {empty}", "contains neither config.json nor weft.json"),
        ("show {settings}", "config.json: model type None is not supported"),
        ("verify", "FOLDER; see weft verify --help"),
        ("verify ./nowhere", "./nowhere is not a directory"),
        ("verify {own}", "export it with weft export first"),
        ("export {hf}", "OUT; see weft export --help"),
        ("convert {hf} out", "unknown command 'convert'; did you mean 'export'?"),
        ("finetune {hf}", "unknown command 'finetune'; did you mean 'tune'?"),
        ("export {hf} {empty} --to tf", "give one of hf, weft"),
        ("export {hf} {hf} --to hf", "give another output folder"),
        ("export {hf} {hf}/../hf --to weft", "give another output folder"),
        (
            "export {hf} {other} --to hf",
            "is not empty and contains no model; give a new or empty directory",
        ),
        (
            "export {hf} {settings} --to hf",
            "is not empty and contains no model; give a new or empty directory",
        ),
        ("export {hf} {file} --to hf", "file is a file; give a directory"),
        ("export ./nowhere {empty} --to hf", "./nowhere is not a directory"),
        ("export {hf} {file}/below --to hf", "Not a directory"),
    ],
)
def test_errors_are_one_line_with_a_fix(
    words: str, told: str, folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.format(**folders).split()) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("weft: ")
    assert told in out.err
    assert out.err.count("\n") == 1
    assert Path(folders["other"], "diary.txt").read_text() == "dear diary"


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "print_result", lambda *args: interrupt(args))
    assert main(["families"]) == 130


@pytest.mark.parametrize("words", [["families"], ["families", "--json"]])
def test_a_closed_pipe_is_not_an_error(words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "weft.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert (child.wait(), child.stderr.read()) == (1, b"")


# Waiting


@pytest.mark.parametrize(
    ("terminal", "seconds", "seen"), [(True, 0.3, True), (True, 0.0, False), (False, 0.3, False)]
)
def test_long_work_shows_itself_on_a_terminal_only(
    terminal: bool,
    seconds: float,
    seen: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "SPINNER_DELAY", 0.1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    with console.spinner("weaving"):
        time.sleep(seconds)
    out = capsys.readouterr()
    assert (("weaving" in out.err), out.out) == (seen, "")


# The README


def test_the_readme_runs_by_copy_and_paste(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[1]
    text = (root / "README.md").read_text()
    (tmp_path / "examples").mkdir()
    shutil.copy(root / "examples" / "reviews.csv", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"^```(python|sh)\n(.*?)^```", text, re.M | re.S):
        if block[0] == "python":
            exec(block[1], {})  # noqa: S102
        for line in block[1].splitlines() if block[0] == "sh" else ():
            if line.startswith("weft "):
                words = shlex.split(line, comments=True)[1:]
                quick = (
                    ["--set", "steps=4", "--set", "checkpoints.every_steps=2"]
                    if words[0] == "train"
                    else []
                )
                assert main([*words, *quick]) == 0, line
                if words[0] == "train":  # its progress goes to stderr
                    capsys.readouterr()
    assert capsys.readouterr().err == ""
    assert Path("my-bert", "config.json").exists()


def documented_commands() -> list[str]:
    """Every command in the first lines of a recipe or an example; `test_docs.py` has those of
    pages.
    """
    root = Path(__file__).parents[1]
    files = [*(root / "recipes").glob("*.py"), *(root / "examples").rglob("*.py")]
    docstrings = [ast.get_docstring(ast.parse(p.read_text())) or "" for p in files]
    joined = "\n".join(docstrings).replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines()]
    return sorted({line for line in lines if line.startswith("weft ")})


@pytest.mark.parametrize("command", documented_commands())
def test_every_documented_command_has_the_options_it_is_given(command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    if words:
        parse_arguments(words)
