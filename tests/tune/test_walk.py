"""Twenty steps of fine-tuning are those of transformers' model, schedule and habits on the same batches: loss and weights."""
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils import clip_grad_norm_
from torch.testing import assert_close
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    get_linear_schedule_with_warmup,
)

import weft
from weft import recipe as R
from weft import run
from weft import spec as S
from weft.data.prepare import prepare
from weft.interop.folder import load, save

from . import made

STEPS, RATE, DECAY, CLIP = 20, 3e-3, 0.01, 0.2    # no warm-up: theirs begins at a rate of nothing, ours one step further


def classes(folder: Path) -> dict[str, Any]:
    return {"model": made.bert(), "objective": R.Classification(), "data": made.data(folder)}


def tags(folder: Path) -> dict[str, Any]:
    """Of every word, whether it is the loom's."""
    labels, own = ("O", "B-LOOM"), {"loom", "warp", "weft", "shuttle"}
    rows = [{"words": s.split(), "tags": [labels[w in own] for w in s.split()]} for s in made.sentences(60, 0)]
    (folder / "tagged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = R.Data(row=R.Tagged(labels=labels), train=R.Source(paths=(str(folder / "tagged.jsonl"),)), tokenizer=R.Bytes(),
                  folder=str(folder / "tags"))
    prepare(data)
    return {"model": made.bert(S.Tags(outputs=2, labels=labels)), "objective": R.Tagging(), "data": data}


def texts(style: Any) -> Callable[[Path], dict[str, Any]]:
    """Whether the loom is in a sentence, decoded as a word by the whole encoder-decoder."""
    shape: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "hidden": 32, "vocabulary": 261}
    special = S.Special(pad=0, begin=2, end=3, start=0 if style == "t5" else 3)

    def task(folder: Path) -> dict[str, Any]:
        model = weft.t5(**shape, head_width=8) if style == "t5" else weft.bart(**shape, positions=64)
        row = R.Templated(template="loom: {text}", target="label", labels=("0", "1"), words=("no", "yes"))
        return {"model": S.replace(model, special=special), "objective": R.TextToText(input=style), "data": made.data(folder, row)}
    return task


def walked(trained: run.Made, model: Any) -> list[float]:
    """As the Trainer does it: no decay of biases and norms, the gradient's norm at most so much, a mean over the batch's labels."""
    plain = [p for p in model.parameters() if p.dim() < 2]
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}], lr=RATE)
    schedule, losses = get_linear_schedule_with_warmup(optimiser, 0, STEPS), []
    for _, work in zip(range(STEPS), trained.trainer.loader(trained.recipe.batch.length).start(0), strict=False):
        (batch,) = work.batches
        keep = batch.get("tokens_keep", torch.ones_like(batch["tokens"]))
        loss = model(input_ids=batch["tokens"], attention_mask=keep, labels=batch["labels"]).loss
        loss.backward()
        clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("task", "kind"), [
    (classes, AutoModelForSequenceClassification), (tags, AutoModelForTokenClassification), (texts("t5"), AutoModelForSeq2SeqLM),
    (texts("bart"), AutoModelForSeq2SeqLM)], ids=["class", "tag", "t5", "bart"])
def test_fine_tuning_walks_as_transformers_does(task: Callable[[Path], dict[str, Any]], kind: Any, tmp_path: Path) -> None:
    parts = task(tmp_path)
    trained = run.make(made.recipe(tmp_path, **parts | {"model": S.with_dropout(parts["model"], 0.0)}, steps=STEPS, clip=CLIP,
                                   optimiser=R.AdamW(rate=RATE, decay=DECAY), schedule=R.Linear(warmup=0)))
    model = kind.from_pretrained(save(trained.objective.model, tmp_path / "begin")).train()
    theirs, ours = walked(trained, model), [event.loss for event in trained.trainer]
    assert max(theirs) - min(theirs) > 0.1
    assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path / "end")
    assert_close(dict(trained.objective.model.state_dict()), dict(load(tmp_path / "end").state_dict()), rtol=1e-5, atol=1e-5)
