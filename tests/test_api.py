"""The top-level Python API."""

import ast
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch

import weft
from tests.inference.small import TEXTS, ready
from weft import spec as S
from weft.nn.kernels.devices import resolve_device, resolve_dtype

ROOT = Path(__file__).parents[1]


def test_the_stub_declares_exactly_the_names_that_weft_has() -> None:
    declared = set()
    for node in ast.parse((ROOT / "src/weft/__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            declared |= {alias.asname for alias in node.names if alias.asname}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            declared.add(node.target.id)
    assert declared - {"__version__"} == set(dir(weft))


@pytest.mark.parametrize(
    ("head", "family", "methods"),
    [
        (None, "bert", {"embed", "fill"}),
        (None, "gpt2", {"embed", "generate", "stream"}),
        (S.ClassifierHead(num_labels=2), "bert", {"embed", "classify"}),
        (S.TokenClassifierHead(num_labels=3), "bert", {"embed", "tag"}),
        (S.SpanHead(), "bert", {"embed", "answer"}),
    ],
)
def test_an_opened_model_has_the_methods_that_its_head_allows(
    head: object, family: str, methods: set[str]
) -> None:
    model = ready(head, family)
    every = {"generate", "stream", "translate", "classify", "tag", "answer", "fill", "embed"}
    assert set(dir(model)) & every == methods
    for name in every - methods:
        with pytest.raises(ValueError, match=f"small cannot {name}: its head is"):
            getattr(model, name)(*(("a", "b") if name == "answer" else ("a",)))


@pytest.mark.parametrize("wrong", [5, None, ["a", 5], ("a", "b")])
def test_what_is_no_text_is_one_clear_line(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"is of type \w+; give a text, or a list of texts$"):
        ready(None, "gpt2").generate(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [5, None, ["a"], ("a",)])
def test_a_list_where_one_text_is_expected_is_one_clear_line(wrong: Any) -> None:
    one = r"is of type \w+; give one text, and call this method once per text$"
    with pytest.raises(ValueError, match=f"^prompt = .* {one}"):
        ready(None, "gpt2").stream(wrong)
    reader = ready(S.SpanHead())
    with pytest.raises(ValueError, match=f"^question = .* {one}"):
        reader.answer(wrong, "a b")
    with pytest.raises(ValueError, match=f"^context = .* {one}"):
        reader.answer("a", wrong)


def test_one_text_gives_one_result_and_a_list_a_list() -> None:
    model = ready(None, "bert")
    one = model.embed(TEXTS[0])
    many = model.embed(TEXTS[:2])
    assert one.shape == (32,)
    assert many.shape == (2, 32)
    assert torch.allclose(one, many[0], atol=1e-5)
    assert [len(masks) for masks in model.fill(["the [MASK] runs", "[MASK] [MASK]"])] == [1, 2]


def test_a_decoder_generates_as_its_model_does() -> None:
    opened = ready(None, "gpt2")
    text = opened.generate("the man", max_new_tokens=5)
    assert isinstance(text, str)
    ids = [opened.require_tokenizer.encode("the man").tolist()]
    assert len(opened.model.generate(ids, max_new_tokens=5)[0]) == 5
    assert opened.model.generate(torch.tensor(ids), max_new_tokens=5) == opened.model.generate(
        ids, max_new_tokens=5
    )
    with pytest.raises(ValueError, match="no decoder"):
        ready(None, "bert").model.generate(ids, max_new_tokens=1)


def test_a_mask_of_zeros_and_ones_hides_padding_and_document_ids_separate() -> None:
    model = ready(None, "bert").model
    ids = torch.randint(5, 50, (1, 12))
    padded = torch.cat((ids, torch.zeros(1, 3, dtype=torch.long)), 1)
    mask = torch.tensor([[1] * 12 + [0] * 3])
    assert torch.allclose(model(padded, attention_mask=mask)[:, :12], model(ids), atol=1e-5)
    documents = torch.tensor([[1] * 5 + [2] * 7 + [3] * 3])
    packed = model(padded, attention_mask=mask, document_ids=documents)
    assert torch.allclose(packed[:, :5], model(ids[:, :5]), atol=1e-5)
    assert torch.allclose(packed[:, 5:12], model(ids[:, 5:]), atol=1e-5)
    embedded = model.embed(padded, attention_mask=mask, document_ids=documents)
    assert torch.equal(embedded.attention_mask_BL, mask.bool())
    assert torch.equal(embedded.document_ids_BL, documents * mask)


def test_devices_and_precisions_are_checked_by_name() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cpu", "cuda", "mps")
    assert resolve_dtype("bf16") is torch.bfloat16
    with pytest.raises(ValueError, match="device 'gpu' is unknown"):
        resolve_device("gpu")
    with pytest.raises(ValueError, match="cuda:99 is not available"):
        resolve_device("cuda:99")
    with pytest.raises(ValueError, match="device 'meta' is not supported"):
        resolve_device("meta")
    with pytest.raises(ValueError, match="fp32 or bf16"):
        resolve_dtype("fp8")


def test_a_weft_model_learns_in_a_plain_pytorch_loop() -> None:
    losses = run_path(str(ROOT / "examples/plain_pytorch.py"))["main"](60)
    assert losses[-1] < 0.7 * losses[0]


def test_a_run_trains_opens_and_is_evaluated_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the quick brown fox jumps over the lazy dog\n\n" * 60)
    overrides = [
        "steps=3",
        "name=mine",
        'data.train.paths=["text.txt"]',
        'data.valid.paths=["text.txt"]',
    ]
    recipe = weft.load_recipe(str(ROOT / "recipes/gpt_char.py"), overrides)
    assert [step.step for step in weft.train(recipe, weft.prepare(recipe.data))] == [1, 2, 3]
    model = weft.open("runs/mine", device="cpu")
    assert len(model.generate("the ", max_new_tokens=4)) == 4
    metrics = weft.evaluate(model, report=lambda line: None)
    assert metrics == weft.evaluate("runs/mine", report=lambda line: None)
    assert "perplexity" in metrics
