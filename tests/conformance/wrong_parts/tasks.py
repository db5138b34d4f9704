"""A task with one fault each: contrastive embeddings of pairs."""

import numpy as np
import torch
import torch.nn.functional as F

import weft
from weft import recipe as R
from weft import spec as S
from weft.nn.heads import pool_tokens
from weft.tasks import Loss, PairEncoding, Preprocess, TaskImplementation, encode_batch
from weft.testing import check_task, small_store

WORDS = "a dog runs|two men sit|the red car stops|a girl reads|it rains|birds fly|he eats|a house"
TEXTS = [f"text{i}" for i in range(3)]


@weft.register
class OwnPairs(R.Task):
    """Tell a pair from another."""

    name = "own_pairs"
    row_schemas = (R.SourceTargetPairs,)
    head = S.NoHead
    metrics = ("right_pair",)
    packable = False
    fault: str = ""


class OwnPairRows(Preprocess):
    def __init__(self, task, context):
        super().__init__(task, context)
        self.join = PairEncoding(task, context, style="gpt")
        self.fields = {name: (name, self.pad_id) for name in TEXTS}

    def __call__(self, samples, index, rng):
        own = self.task.fault != "global generator"
        step = rng.integers(1, len(samples)) if own else np.random.randint(1, len(samples))
        pair = (index, (index + step) % len(samples))
        texts = [samples[index]["source"], *(samples[int(i)]["target"] for i in pair)]
        rows = [self.join(text, None, samples.length)["tokens"] for text in texts]
        return dict(zip(TEXTS, rows, strict=True)) | {"labels": np.array(0)}


class OwnPairLoss(Loss):
    def forward_outputs(self, batch):
        rows = [encode_batch(self.model, batch, name) for name in TEXTS]
        return F.normalize(torch.stack([pool_tokens(row, "mean") for row in rows], 1), dim=-1)

    def loss_sums(self, x_BTD, batch):
        logits_BT = (x_BTD[:, :1] * x_BTD[:, 1:]).sum(-1) / 0.05
        reduction = "mean" if self.task.fault == "mean loss" else "sum"
        return {"token": F.cross_entropy(logits_BT, batch["labels"], reduction=reduction)}


@weft.implements(OwnPairs)
class OwnPairsTask(TaskImplementation):
    preprocess_class = OwnPairRows
    loss_class = OwnPairLoss

    def predict(self, x_BTD, batch):
        pairs_BTD = x_BTD[:, :2].double()
        return list(pairs_BTD) if self.task.fault.startswith("tensors") else pairs_BTD.tolist()

    def evaluate(self, predictions, references):
        first_ND, second_ND = np.array(predictions).transpose(1, 0, 2)
        hits_N = (first_ND @ second_ND.T).argmax(1) == np.arange(len(first_ND))
        yield ("hits" if self.task.fault == "other metric" else "right_pair"), float(hits_N.mean())


def check(fault):
    rows = [{"source": text, "target": text[::-1]} for text in WORDS.split("|")]
    store, tokenizer = small_store(rows, R.SourceTargetPairs())
    sizes = {"depth": 1, "width": 16, "heads": 2, "hidden": 32, "vocab_size": tokenizer.size}
    spec = weft.with_dropout(weft.bert(**sizes), 0.0)
    check_task(OwnPairs(fault=fault), weft.replace(spec, head=S.NoHead()), store)
