"""The examples of a user's own task: conformance, training through the command, exact resume,
evaluation.
"""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.support.values import from_json, to_json
from weft.testing import check_task, small_store

FILE = Path(__file__).parents[2] / "examples" / "extend" / "contrastive_embeddings.py"
ANIMALS = ["cat", "dog", "cow", "hen"]
COLOURS = ["red", "blue", "green", "white"]
# no word of a sentence is in its pair
PAIRS = [
    {
        "source": f"{ANIMALS[i % 4]} and {ANIMALS[i // 4 % 4]} {'sleep' if i < 16 else 'run'}",
        "target": f"{COLOURS[i % 4]} or {COLOURS[i // 4 % 4]} {'night' if i < 16 else 'day'}",
    }
    for i in range(32)
]


@pytest.fixture(scope="module")
def example() -> Any:
    found = spec_from_file_location(FILE.stem, FILE)
    module = module_from_spec(found)
    sys.modules[FILE.stem] = module  # as an import does: workers find its classes by name
    found.loader.exec_module(module)
    return module


def model(vocabulary: int) -> S.Spec:
    sizes = {"depth": 2, "width": 32, "heads": 2, "hidden": 64, "positions": 64}
    spec = weft.bert(**sizes, vocab_size=vocabulary, dropout=0.0, attention_dropout=0.0)
    return S.replace(spec, head=S.NoHead())


def recipe(task: R.Task, folder: Path) -> R.Recipe:
    source = R.Source(paths=(str(folder / "pairs.jsonl"),))
    return R.Recipe(
        name="contrast",
        model=model(120),
        task=task,
        data=R.Data(
            rows=R.SourceTargetPairs(),
            train=source,
            valid=source,
            tokenizer=R.WordPiece(vocab_size=120),
            prepared_folder=str(folder / "prepared"),
        ),
        batch=R.FixedBatch(size=8, length=32),
        steps=40,
        optimiser=R.AdamW(lr=3e-3),
        average=R.BestCheckpoint(metric="retrieval_accuracy"),
        eval_every=10,
        checkpoints=R.Checkpoints(every_steps=10, keep=9),
    )


def write(folder: Path, name: str, task: R.Task) -> str:
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    (folder / name).write_text(to_json(recipe(task, folder)))
    return str(folder / name)


def test_the_example_is_short() -> None:
    assert len(FILE.read_text().splitlines()) <= 65


def test_the_example_keeps_the_contract(example: Any) -> None:
    store, tokenizer = small_store(PAIRS[:8], R.SourceTargetPairs())
    check_task(example.ContrastiveEmbeddings(), model(tokenizer.size), store)


def test_it_trains_through_the_command_resumes_and_is_evaluated(
    example: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "contrast.json", example.ContrastiveEmbeddings(negatives=4))
    assert from_json(Path(path).read_text()).task == example.ContrastiveEmbeddings(negatives=4)
    assert main(["train", path]) == 0
    lines = [json.loads(line) for line in Path("runs/contrast/log.jsonl").read_text().splitlines()]
    looks = [line["valid"]["retrieval_accuracy"] for line in lines if "valid" in line]
    assert looks[0] < max(looks)  # it learns, and chance is one in 32
    assert max(looks) > 0.25
    capsys.readouterr()
    assert main(["evaluate", "runs/contrast", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores == {"retrieval_accuracy": max(looks)}  # one code for both, and the best weights
    assert main(["resume", "runs/contrast", "--verify"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "runs/contrast", "--data", "pairs.jsonl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == scores
