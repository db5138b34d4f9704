"""`weft generate` and `weft translate` on the command line."""

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

import weft
from weft import recipe as R
from weft.cli import main
from weft.data.tokenizing.train_tokenizer import fit_tokenizer
from weft.generate.sampling import Sampling
from weft.generate.text_generator import TextGenerator
from weft.inference.open_model import open_model

TEXT = ["the quick brown fox jumps over the lazy dog", "a dog runs, a fox sleeps."] * 4


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("speaker"), "gpt2", positions=64)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("translator"), "transformer", hidden=24)


def made(folder: Path, family: str, **more: int) -> str:
    tokenizer = fit_tokenizer(R.ByteBPE(vocab_size=280), lambda: TEXT)
    spec = weft.family(family)(
        depth=1,
        width=16,
        heads=2,
        vocab_size=tokenizer.size,
        **more,
        init=weft.NormalInit(std=0.4),
    )
    weft.save(weft.build(spec), folder, to="weft")
    tokenizer.save(folder / "tokenizer.json")
    return str(folder)


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_one_prompt_is_answered_on_the_screen_as_by_the_writer(
    speaker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = TextGenerator(open_model(speaker))
    assert (
        typed(capsys, "generate", speaker, "a fox", "--max-new-tokens", "12")
        == writer.complete(["a fox"], max_new_tokens=12)[0] + "\n"
    )
    drawn = typed(
        capsys,
        "generate",
        speaker,
        "a fox",
        "--max-new-tokens",
        "12",
        "--seed",
        "3",
        "--top-k",
        "9",
        "--stop",
        "o",
    )
    assert (
        drawn
        == writer.complete(
            ["a fox"], max_new_tokens=12, sampling=Sampling(seed=3, top_k=9), stop_strings=("o",)
        )[0]
        + "\n"
    )
    assert (
        typed(
            capsys, "generate", speaker, "a fox", "--max-new-tokens", "12", "--draft-model", speaker
        )
        == typed(capsys, "generate", speaker, "a fox", "--max-new-tokens", "12")
        == typed(capsys, "generate", speaker, "--max-new-tokens", "12", "a fox")
    )


def test_an_answer_is_as_long_as_fits_unless_told(
    speaker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = json.loads(typed(capsys, "generate", speaker, "a fox", "--logprobs", "--json"))
    assert (
        len(row["tokens"])
        == len(row["logprobs"])
        == 64 - len(TextGenerator(open_model(speaker)).encode_prompt("a fox"))
    )


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "txt"])
def test_files_go_in_and_out_in_order(
    speaker: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = ["the lazy dog", "a", "over the quick", "dog", "jumps", "fox"]
    given = tmp_path / f"in.{suffix}"
    wanted = tmp_path / f"out.{suffix}"
    given.write_text(
        {
            "jsonl": "".join(
                json.dumps({"id": i, "prompt": p}) + "\n" for i, p in enumerate(prompts)
            ),
            "csv": "id,prompt\n" + "".join(f"{i},{p}\n" for i, p in enumerate(prompts)),
            "txt": "".join(f"{p}\n" for p in prompts),
        }[suffix]
    )
    typed(
        capsys,
        "generate",
        speaker,
        "--input",
        str(given),
        "--output",
        str(wanted),
        "--max-new-tokens",
        "6",
    )
    truth = TextGenerator(open_model(speaker)).complete(prompts, max_new_tokens=6)
    if suffix == "txt":
        assert wanted.read_text().splitlines() == [
            text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") for text in truth
        ]
    else:
        text = wanted.read_bytes().decode()
        rows = (
            [*csv.DictReader(io.StringIO(text, newline=""))]
            if suffix == "csv"
            else [json.loads(line) for line in text.splitlines()]
        )
        assert [row["answer"] for row in rows] == truth
        assert [row["prompt"] for row in rows] == prompts
        assert [int(row["id"]) for row in rows] == [*range(6)]


def test_samples_and_beams_give_several_answers(
    speaker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = json.loads(
        typed(
            capsys,
            "generate",
            speaker,
            "a fox",
            "--max-new-tokens",
            "9",
            "--num-samples",
            "3",
            "--json",
        )
    )
    assert len({answer["answer"] for answer in row["answers"]}) == 3
    (row,) = json.loads(
        typed(
            capsys,
            "generate",
            speaker,
            "a fox",
            "--max-new-tokens",
            "9",
            "--num-beams",
            "4",
            "--num-return",
            "2",
            "--json",
        )
    )
    scores = [answer["score"] for answer in row["answers"]]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)


def test_standard_input_is_one_prompt_or_a_text_a_line_to_translate(
    speaker: str,
    translator: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a fox\nand a dog\n"))
    assert (
        typed(capsys, "generate", speaker, "--max-new-tokens", "5")
        == TextGenerator(open_model(speaker)).complete(["a fox\nand a dog"], max_new_tokens=5)[0]
        + "\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("a fox\n\nthe lazy dog\n"))
    truth = TextGenerator(open_model(translator)).translate(["a fox", "", "the lazy dog"])
    assert typed(capsys, "translate", translator).split("\n") == [
        " ".join(text.split("\n")) for text in truth
    ] + [""]
    assert json.loads(typed(capsys, "translate", translator, "a fox", "--json")) == [
        {"text": "a fox", "translation": truth[0]}
    ]


def test_only_a_line_end_parts_texts(
    translator: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["a\u2028fox", "the\x0clazy\x85dog", "", "a dog"]
    whole = "\ufeff" + "\r\n".join(texts) + "\n"
    with gzip.open(tmp_path / "in.txt.gz", "wb") as file:
        file.write(whole.encode())
    (tmp_path / "in.txt").write_bytes(whole.encode())
    for name in ("in.txt", "in.txt.gz"):
        assert [
            row["text"]
            for row in json.loads(
                typed(capsys, "translate", translator, "--input", str(tmp_path / name), "--json")
            )
        ] == texts
    monkeypatch.setattr("sys.stdin", io.StringIO(whole))
    assert [
        row["text"] for row in json.loads(typed(capsys, "translate", translator, "--json"))
    ] == texts


def test_a_brace_alone_is_no_json(
    speaker: str,
    translator: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given, words, texts in (
        ("{ a fox\nruns\n", ["generate", speaker], ["{ a fox\nruns"]),
        ("{ a fox\nruns\n", ["translate", translator], ["{ a fox", "runs"]),
        ('{"text": "a fox"}\n', ["generate", speaker], ["a fox"]),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        assert [row["text"] for row in json.loads(typed(capsys, *words, "--json"))] == texts


def test_a_column_of_the_users_stays(
    speaker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text(
        '{"prompt": "a fox", "answer": "gold"}\n{"prompt": "a dog"}\n'
    )
    rows = json.loads(
        typed(capsys, "generate", speaker, "--input", str(tmp_path / "in.jsonl"), "--json")
    )
    assert [row.get("answer") for row in rows] == ["gold", None]
    assert all(isinstance(row["weft_answer"], str) and row["ended"] is False for row in rows)


def test_a_long_prompt_shortens_no_other_answer(
    speaker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("a fox\n" + "a dog runs " * 7 + "\n")
    (alone,) = json.loads(typed(capsys, "generate", speaker, "a fox", "--json"))
    assert (
        json.loads(
            typed(capsys, "generate", speaker, "--input", str(tmp_path / "in.txt"), "--json")
        )[0]
        == alone
    )


def test_a_wrong_row_is_named(
    speaker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, given, words, said in (
        ("a.txt", "a fox\n\na dog\n", [], "row 2: the prompt is empty"),
        ("b.txt", "a\n" + "a dog runs " * 40 + "\n", [], "row 2: 320 prompt tokens"),
        (
            "c.jsonl",
            '{"messages": "a"}\n{"id": 2}\n',
            ["--chat"],
            "row 1: a conversation must be a list",
        ),
        ("d.csv", "a,b\nx,y\n", [], "name it with --columns\n"),
    ):
        (tmp_path / name).write_text(given)
        assert main(["generate", speaker, "--input", str(tmp_path / name), *words]) == 2
        assert said in capsys.readouterr().err


def test_what_cannot_be_written_is_refused_before_the_work_and_never_lost(
    speaker: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for out, said in (
        (tmp_path / "none" / "out.txt", "does not exist"),
        (tmp_path, "is a folder"),
        (tmp_path / "o.gz", "o.gz: cannot write"),
    ):
        assert main(["generate", "no model", "a", "--output", str(out)]) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setattr(
        "weft.data.reading.write_rows.write_rows",
        lambda path, rows: Path(path, "full").write_text(""),
    )
    assert main(["generate", speaker, "a", "--output", str(tmp_path / "out.jsonl")]) == 2
    assert json.loads(capsys.readouterr().out)["text"] == "a"


def test_lower_precision_is_asked_for_by_name(
    translator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for precision in ("fp32", "bf16"):
        assert typed(capsys, "translate", translator, "a fox", "--precision", precision).endswith(
            "\n"
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate", "{speaker}", ""], "the prompt is empty"),
        (["generate", "{speaker}", "a", "--max-new-tokens", "90"], "64 positions; "),
        (
            ["generate", "{speaker}", "a", "--top-p", "3"],
            "--top-p 3: give a number above 0, at most 1",
        ),
        (["translate", "{speaker}", "a"], "no encoder"),
        (["generate", "{speaker}", "a", "--input", "x"], "cannot be combined"),
        (["generate", "{speaker}", "--input", "no.txt"], "--input no.txt: no.txt does not exist"),
        (["generate", "{speaker}", "a", "--chat"], "no chat template"),
        (
            ["generate", "{speaker}", "a", "--num-beams", "2", "--seed", "1"],
            "--num-beams cannot be combined",
        ),
        (
            ["generate", "{speaker}", "a", "--num-beams", "2", "--repetition-penalty", "1.5"],
            "cannot be combined with sampling, --repetition-penalty",
        ),
        (["generate", "{speaker}", "a", "--stop", ""], "--stop is empty"),
        (["generate", "{speaker}", "--max-new-tokens", "4", "a", "b"], "'b' is a second prompt"),
        (["generate", "{speaker}", "a", "--num-return", "2"], "--num-return needs --num-beams"),
        (
            ["generate", "{speaker}", "a", "--max-new-tokens", "0"],
            "--max-new-tokens 0: give an integer of at least 1",
        ),
        (
            ["generate", "{speaker}", "a", "--max-new-tokens", "lots"],
            "--max-new-tokens lots: give an integer of at least 1",
        ),
        (
            ["generate", "{speaker}", "a", "--length-penalty", "warm"],
            "--length-penalty warm: give a number",
        ),
        (
            ["generate", "{speaker}", "a", "--num-beams", "2", "--length-penalty", "nan"],
            "nan: give a number",
        ),
        (
            ["generate", "{speaker}", "a", "--draft-model", "{translator}"],
            "both have an encoder",
        ),
    ],
)
def test_wrong_input_gets_one_clear_line(
    speaker: str, translator: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(speaker=speaker, translator=translator) for word in words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_behind_two_dashes_all_is_text(speaker: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--max-new-tokens", "3", "--", "-a"], ["--", "-a"]):
        assert main(["generate", speaker, *words]) == 0


@pytest.mark.parametrize("count", [10**12, 10**30])
def test_more_new_tokens_than_memory_holds_are_refused_in_one_line(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "demo", "JULIET:", "--max-new-tokens", str(count)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"max_new_tokens = {count:,}" in line
    with pytest.raises(ValueError, match="max_new_tokens"):
        weft.open("demo").generate("JULIET:", max_new_tokens=count)
