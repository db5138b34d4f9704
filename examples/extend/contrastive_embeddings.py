"""A task with its metric: sentence embeddings by InfoNCE (arXiv:1807.03748)."""

import numpy as np
import torch
import torch.nn.functional as F

from weft import recipe, spec
from weft.nn.heads import pool_tokens
from weft.support.registry import implements, register
from weft.tasks import Loss, PairEncoding, Preprocess, TaskImplementation, encode_batch


@register
class ContrastiveEmbeddings(recipe.Task):
    """Tell a sentence's own pair from other sentences, which are drawn anew for each sample."""

    name = "contrast"
    row_schemas = (recipe.SourceTargetPairs,)
    head = spec.NoHead
    metrics = ("retrieval_accuracy",)
    packable = False
    negatives: int = 3
    temperature: float = 0.05


class PairAndNegatives(Preprocess):
    def __init__(self, task, context):
        super().__init__(task, context)
        self.join = PairEncoding(task, context, style="gpt")  # a text between marks
        self.fields = {f"text{i}": (f"text{i}", self.pad_id) for i in range(2 + task.negatives)}

    def __call__(self, samples, index, rng):
        others = (index + rng.integers(1, len(samples), self.task.negatives)) % len(samples)
        texts = [samples[index]["source"], *(samples[int(i)]["target"] for i in (index, *others))]
        rows = [self.join(text, None, samples.length)["tokens"] for text in texts]
        return dict(zip(self.fields, rows, strict=True)) | {"labels": np.array(0)}  # which is right


class InfoNCE(Loss):
    def forward_outputs(self, batch):
        texts = [f"text{i}" for i in range(2 + self.task.negatives)]
        rows = [encode_batch(self.model, batch, text) for text in texts]
        x_BTD = torch.stack([pool_tokens(row, "mean") for row in rows], 1)
        return F.normalize(x_BTD, dim=-1)

    def loss_sums(self, x_BTD, batch):
        logits_BT = (x_BTD[:, :1] * x_BTD[:, 1:]).sum(-1) / self.task.temperature
        return {"token": F.cross_entropy(logits_BT, batch["labels"], reduction="sum")}


@implements(ContrastiveEmbeddings)
class ContrastiveTask(TaskImplementation):
    preprocess_class = PairAndNegatives
    loss_class = InfoNCE

    def predict(self, x_BTD, batch):
        return x_BTD[:, :2].double().tolist()  # both sentences of each pair

    def evaluate(self, predictions, references):
        first_ND, second_ND = np.array(predictions).transpose(1, 0, 2)
        hits_N = (first_ND @ second_ND.T).argmax(1) == np.arange(len(first_ND))
        yield "retrieval_accuracy", float(hits_N.mean())
