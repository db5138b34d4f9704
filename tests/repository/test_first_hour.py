"""The model and the text that ship with Weft, the notebook, and README's first screens."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import weft
from weft.cli import main
from weft.interop.huggingface.hub import PACKAGED, local_folder
from weft.interop.huggingface.verify import verify

ROOT = Path(__file__).parents[2]
DEMO = PACKAGED["demo"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# The name demo


def test_the_demo_is_small_has_its_receipt_and_is_the_model_that_transformers_opens() -> None:
    assert sum(path.stat().st_size for path in DEMO.iterdir()) < 2_000_000
    readme = (DEMO / "README.md").read_text()
    assert all(word in readme for word in ("weft train", "commit", "seed", "validation", "licen"))
    assert max(verify(DEMO).values()) <= 1e-5


def test_the_demo_has_learned_to_spell() -> None:
    demo = weft.open("demo")
    text = (
        "KING RICHARD III:\nA horse! a horse! my kingdom for a horse!\n\nCATESBY:\nWithdraw, "
        "my "
        "lord;"
    )
    ids = torch.from_numpy(demo.tokenizer.encode(text))[None]
    with torch.no_grad():
        log_probs_BLV = demo.model(ids).log_softmax(-1)
    nats = -log_probs_BLV[0, :-1].gather(1, ids[0, 1:, None]).mean()
    assert nats < 2.0, "a table of single characters would have 3.3"


def test_generate_demo_needs_no_prompt_and_is_deterministic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outputs = []
    for _ in range(2):
        assert main(["generate", "demo", "--max-new-tokens", "60"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("ROMEO:\n")
    assert len(outputs[0]) > 60


def test_a_folder_called_demo_comes_before_the_one_that_ships_with_weft() -> None:
    assert local_folder("demo") == DEMO
    weft.save(weft.build(weft.gpt2(depth=1, width=8, heads=2, vocab_size=9, positions=8)), "demo")
    assert local_folder("demo") == Path("demo")
    assert weft.open("demo").model.spec.width == 8


def test_look_show_and_evaluate_know_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "demo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] < 1_000_000
    assert main(["look", "demo", "To be", "-o", "page.html"]) == 0
    Path("text.txt").write_text("ROMEO:\nO, she doth teach the torches to burn bright!\n" * 8)
    capsys.readouterr()
    assert main(["evaluate", "demo", "--task", "perplexity", "--data", "text.txt", "--json"]) == 0
    assert "perplexity" in capsys.readouterr().out


# The first hour


def test_the_shakespeare_recipe_trains_on_packaged_text_and_exports_as_llama(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_DATA", str(ROOT))
    name = str(ROOT / "recipes" / "first_run.py") + ":shakespeare"
    changes = ("steps=2", "schedule.warmup_steps=1", "eval_every=2")
    words = [word for change in changes for word in ("--set", change)]
    assert main(["train", name, *words]) == 0
    assert main(["export", "runs/shakespeare", "hf"]) == 0
    assert weft.load("hf").spec.width == 96


def test_the_notebook_runs_and_holds_no_output(capsys: pytest.CaptureFixture[str]) -> None:
    """In one namespace, cell by cell: a kernel of Jupyter would be thirty more packages."""
    notebook = json.loads((ROOT / "examples" / "first_hour.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    namespace: dict[str, object] = {}
    for cell in cells:
        exec("".join(cell["source"]), namespace)  # noqa: S102
    assert Path("look.html").is_file()
    assert "loss" in capsys.readouterr().out


@pytest.mark.slow
def test_the_first_screens_of_readme_run_as_printed() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "first_hour"), "--here"]
    result = subprocess.run(script, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "weft generate demo" in result.stdout
