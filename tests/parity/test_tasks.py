"""One step of pre-training is that of transformers' models on the same weights and rows: the loss,
and every weight after an update.
"""

from pathlib import Path
from typing import Any

import torch
from torch.testing import assert_close
from transformers import ElectraForMaskedLM, ElectraForPreTraining, T5ForConditionalGeneration

from weft import recipe as R
from weft.interop.loading import load
from weft.interop.saving import save
from weft.tasks.base import Batch

from ..tasks.cases import SENTENCES, TEXT, electra, t5
from ..tasks.made import batch, build_pair, loss, meta, rows, texts

RATE = 0.5


def published(kind: Any, model: Any, folder: Path) -> Any:
    # a generator as wide as its table could also be a BERT
    model.family = kind.config_class.model_type
    return kind.from_pretrained(save(model, folder), dtype=torch.float64).eval()


def step(module: torch.nn.Module) -> None:
    torch.optim.SGD(module.parameters(), lr=RATE).step()


def assert_same_weights(ours: Any, theirs: Any, folder: Path) -> None:
    theirs.save_pretrained(folder)
    assert_close(
        dict(ours.state_dict()),
        dict(load(folder, dtype=torch.float64).state_dict()),
        rtol=1e-6,
        atol=1e-6,
    )


def electra_loss(
    generator: Any, discriminator: Any, made: Batch, drawn_T: torch.Tensor
) -> torch.Tensor:
    """Section 3.2, written with transformers' models: both read the same padding mask, the labels
    are those of the filled text.
    """
    mask = made.get("tokens_attention_mask", torch.ones_like(made["tokens"]))
    labels = made["labels"]
    asked = labels >= 0
    filled = made["tokens"].clone()
    filled[asked] = drawn_T
    replaced = asked & (filled != labels)
    assert 0 < replaced.sum() < asked.sum()  # some drawn tokens are the text's own
    token = generator(input_ids=made["tokens"], attention_mask=mask, labels=labels).loss
    found = discriminator(input_ids=filled, attention_mask=mask, labels=replaced.double()).loss
    total: torch.Tensor = token + 50 * found
    return total


def test_electra_s_step_is_that_of_transformers_generator_and_discriminator(tmp_path: Path) -> None:
    model, generator = electra()
    corruption, objective = build_pair(
        R.ReplacedTokenDetection(generator=generator), model, meta(SENTENCES), dtype=torch.float64
    )
    given = rows(corruption, texts(40, 38, 40))
    given[3] = {name: value[:20] for name, value in given[3].items()}  # one row has padding
    made = batch(corruption, given)
    theirs = published(ElectraForPreTraining, objective.model, tmp_path / "model")
    proposer = published(ElectraForMaskedLM, objective.generator, tmp_path / "generator")
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        getattr(proposer.electra.embeddings, name).weight = getattr(
            theirs.electra.embeddings, name
        ).weight
    proposer.tie_weights()
    with torch.no_grad():
        drawn_T = objective.forward_outputs(made).drawn_T
    expected = electra_loss(proposer, theirs, made, drawn_T)
    expected.backward()
    assert_close(loss(objective, corruption, [made]), expected.detach(), rtol=1e-7, atol=1e-7)
    for module in (objective, torch.nn.ModuleList([theirs, proposer])):
        step(module)
    assert_same_weights(objective.model, theirs, tmp_path / "model after")
    assert_same_weights(objective.generator, proposer, tmp_path / "generator after")


def test_t5_s_step_is_that_of_transformers_model(tmp_path: Path) -> None:
    corruption, objective = build_pair(R.SpanCorruption(), t5(), meta(TEXT), dtype=torch.float64)
    made = batch(corruption, rows(corruption, texts(6, 36, 34)))
    theirs = published(T5ForConditionalGeneration, objective.model, tmp_path / "model")
    expected = theirs(
        input_ids=made["tokens"], decoder_input_ids=made["target"], labels=made["labels"]
    ).loss
    expected.backward()
    assert_close(loss(objective, corruption, [made]), expected.detach(), rtol=1e-7, atol=1e-7)
    step(objective)
    step(theirs)
    assert_same_weights(objective.model, theirs, tmp_path / "after")
