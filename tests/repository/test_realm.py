"""Retrieval in small: the model of examples/realm.py."""

from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch

import weft
from weft import recipe as R
from weft.data.tokenizing.train_tokenizer import fit_tokenizer

ROOT = Path(__file__).parents[2]
TEXT = [
    " = The Loom = ",
    "",
    " In 1804 the weaver Joseph Marie built a loom in Lyon . It read 24 @,@ 000 cards . ",
    " The cards of Joseph Marie were sold in Paris and London until 1840 . ",
    " = The Shuttle = ",
    " A shuttle was made by John Kay in Bury , who moved to France in 1747 . ",
] * 3


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return run_path(str(ROOT / "examples" / "realm.py"))


@pytest.fixture(scope="module")
def passages(example: dict[str, Any]) -> list[Any]:
    tokenizer = fit_tokenizer(R.WordPiece(vocab_size=120), lambda: TEXT)
    return list(example["read_passages"](TEXT, tokenizer, 20))


@pytest.fixture
def model(example: dict[str, Any]) -> Any:
    spec = weft.bert(depth=1, width=16, heads=2, hidden=32, vocab_size=120, positions=64)
    realm = example["Realm"](
        weft.with_dropout(spec, 0.0), example["SpecialTokens"](2, 3, 4, 0), vector=8
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # large enough that attention to a wrong token or segment shows
        for parameter in realm.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return realm


def queries_of(example: dict[str, Any], passages: list[Any]) -> list[Any]:
    special = example["SpecialTokens"](2, 3, 4, 0)
    return [example["mask_span"](p, p.spans[-1], special, i) for i, p in enumerate(passages[:3])]


def test_a_query_is_the_passage_with_mask_tokens_where_its_labels_were(
    example: dict[str, Any], passages: list[Any]
) -> None:
    for query, passage in zip(queries_of(example, passages), passages, strict=False):
        assert query.ids.count(4) == len(query.at) == len(query.labels) > 0
        filled = dict(zip(query.at, query.labels, strict=True))
        assert {query.ids[place] for place in filled} == {4}
        assert [filled.get(i, t) for i, t in enumerate(query.ids)] == [2, *passage.ids, 3]


def test_the_marginal_is_the_sum_over_documents_computed_one_at_a_time(
    example: dict[str, Any], passages: list[Any], model: Any
) -> None:
    queries = queries_of(example, passages)
    documents = [[passages[3].ids, passages[4].ids[:7], []] for _ in queries]
    marginal_B = model.log_marginal(queries, documents)
    for query, some, marginal in zip(queries, documents, marginal_B, strict=True):
        vectors = model.vectors([query.ids])[0], [model.vectors([[2, *d, 3]])[0] for d in some]
        scores = torch.stack([vectors[0] @ each for each in vectors[1]])
        total = torch.zeros(())
        for score, document in zip(scores, some, strict=True):
            prior = score.exp() / scores.exp().sum()
            row = torch.tensor([[*query.ids, *([*document, 3] if document else [])]])
            segments = (torch.arange(row.shape[1]) >= len(query.ids)).long()[None]
            probability = model.reader(row, token_type_ids=segments)[0].softmax(-1)
            for place, label in zip(query.at, query.labels, strict=True):
                prior = prior * probability[place, label]
            total = total + prior
        torch.testing.assert_close(marginal, total.log(), rtol=1e-5, atol=1e-5)


def test_a_query_never_retrieves_the_passage_that_it_was_made_of(
    example: dict[str, Any], passages: list[Any], model: Any
) -> None:
    index = example["Index"](model, passages)
    queries = queries_of(example, passages)
    every = index.nearest(queries, len(passages) - 1)
    for query, numbers in zip(queries, every, strict=True):
        assert sorted(numbers) == [i for i in range(len(passages)) if i != query.number]
        scores = model.vectors([query.ids])[0] @ index.vectors_PD[numbers].T
        assert scores.tolist() == sorted(scores.tolist(), reverse=True)


def test_the_index_holds_fresh_vectors_after_a_refresh_and_stale_ones_before(
    example: dict[str, Any], passages: list[Any], model: Any
) -> None:
    index = example["Index"](model, passages)
    with torch.no_grad():
        model.project.weight.mul_(2)
        fresh_PD = torch.cat([model.vectors([[2, *p.ids, 3]]) for p in passages])
    assert (index.vectors_PD - fresh_PD).abs().max() > 1e-3
    index.refresh(batch=2)
    torch.testing.assert_close(index.vectors_PD, fresh_PD, rtol=1e-5, atol=1e-6)
