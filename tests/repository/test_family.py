"""A family from a user's own file, examples/extend/opt.py: read, written, trained, killed, resumed,
exported.
"""

import json
from pathlib import Path

import pytest
import torch
import transformers as hf

from .test_examples import RECIPE, digest, python, refused, train_and_kill, weft
from .test_examples import folder as folder  # a fixture

OWN = ("--code", "opt.py")
MODEL = "weft.opt(depth=2, width=16, heads=2, hidden=32, vocab_size=261, positions=64)"
CHECK = """
from weft.support.user_code import load_code
load_code(["opt.py"])
import weft
from weft.testing import check_family
check_family(weft.opt, depth=2, width=16, heads=2, hidden=24, vocab_size=40, positions=12)
counts = [weft.opt(size).parameter_count() for size in ("125m", "1.3b")]
assert counts == [125_239_296, 1_315_758_080]
"""


@pytest.fixture
def published(folder: Path) -> Path:
    """A small OPT with random weights, as transformers saves it."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "vocab_size": 67}
    config = hf.OPTConfig(
        **sizes, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32
    )
    model = hf.OPTForCausalLM(config)
    for p in model.parameters():
        torch.nn.init.normal_(p, 0.0 if p.dim() > 1 else 0.5, 0.2)
    model.save_pretrained(folder / "published")
    return folder / "published"


def test_it_conforms_and_counts_as_published(folder: Path) -> None:
    done = python(folder, "-c", CHECK)
    assert done.returncode == 0, done.stderr


def test_it_is_listed_with_its_sizes(folder: Path) -> None:
    listed = {row["family"]: row for row in json.loads(weft(folder, "families", "--json", *OWN))}
    assert listed["opt"]["sizes"]["125m"] == 125_239_296
    assert "opt" not in weft(folder, "families").split()


def test_a_published_folder_gives_the_same_outputs_and_comes_back_with_the_same_bytes(
    folder: Path, published: Path
) -> None:
    assert "with --code FILE" in refused(folder, "verify", "published")
    report = json.loads(weft(folder, "verify", "published", "--json", *OWN))
    assert set(report["differences"]) == {"logits", "last_hidden_state"}
    assert max(report["differences"].values()) <= 1e-5
    weft(folder, "export", "published", "own", "--to", "weft", *OWN)
    assert "no Hugging Face family" in refused(folder, "export", "own", "back", "--to", "hf")
    weft(folder, "export", "own", "back", "--to", "hf", *OWN)
    weights = "model.safetensors"
    assert (folder / "back" / weights).read_bytes() == (published / weights).read_bytes()


def test_it_trains_resumes_bit_for_bit_evaluates_and_opens_in_transformers(folder: Path) -> None:
    line = next(line for line in RECIPE.splitlines() if "model=" in line)
    (folder / "recipe.py").write_text(RECIPE.replace(line, f"    model={MODEL},"))
    assert "no 'opt'" in refused(folder, "train", "recipe.py", "--output", "whole")
    weft(folder, "train", "recipe.py", "--output", "whole", *OWN)
    train_and_kill(folder, "killed", *OWN)
    weft(folder, "resume", "killed")
    assert digest(folder / "whole") == digest(folder / "killed")
    assert "perplexity" in weft(folder, "evaluate", "whole", "--json")  # its spec is of our values
    weft(folder, "export", "whole", "out", "--to", "hf", *OWN)
    _, report = hf.AutoModelForCausalLM.from_pretrained(folder / "out", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert json.loads(weft(folder, "verify", "out", "--json", *OWN))["same"]
