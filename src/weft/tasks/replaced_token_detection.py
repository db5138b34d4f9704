"""Replaced token detection: classify each token as original or replaced by a small generator
(ELECTRA, arXiv:2003.10555, sections 2 and
3.2)."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..data.batches.collate import attention_mask
from ..nn.initialisation import parameter_seed
from ..nn.kernels.cross_entropy import accumulation_dtype, cross_entropy, row_chunks
from ..nn.layers.positions import LearnedPositionsLayer
from ..nn.model import Model, build
from . import masked_lm
from .base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Loss,
    TaskContext,
    check_model,
    expert_stacks,
    logits_at,
    masks,
    selected_labels,
)
from .task import TaskImplementation


class ReplacedTokenPreprocess(masked_lm.MaskedLMPreprocess):
    """Masks every chosen token, and adds the uniform random number with which the generator's token
    is sampled.
    """

    terms: tuple[str, ...]

    def __init__(self, task: R.ReplacedTokenDetection, context: TaskContext) -> None:
        check_model(task, context, encoder=True, head=S.TokenClassifierHead)
        check_model(task, context._replace(spec=task.generator), encoder=True)
        super().__init__(
            R.MaskedLM(mask_rate=task.mask_rate, mask_token_rate=1.0, random_token_rate=0.0),
            context,
            head=S.TokenClassifierHead,
        )
        if (
            isinstance(context.spec.head, S.TokenClassifierHead)
            and context.spec.head.num_labels != 1
        ):
            raise ValueError(
                "ReplacedTokenDetection needs one output per token: use "
                f"TokenClassifierHead(num_labels=1), not {context.spec.head.num_labels}"
            )
        if expert_stacks(task.generator):
            raise ValueError(
                "ReplacedTokenDetection has router losses for the model only, not for the "
                "generator; give the generator MLP or GatedMLP layers"
            )
        model_table, generator_table = (
            (m.vocab_size, m.embedding_dim) for m in (context.spec, task.generator)
        )
        if model_table != generator_table:
            raise ValueError(
                f"generator and model share one token table; the generator's is {generator_table}, "
                f"the model's {model_table}"
            )
        self.fields["uniform"] = ("tokens", 0)
        self.terms = ("token", "replaced")

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        row = super().__call__(samples, index, rng)
        return {**row, "uniform": rng.random(len(row["tokens"]), np.float32)}

    def term_counts(self, batch: Batch) -> dict[str, int]:
        mask = attention_mask(batch, "tokens")
        return {
            "token": len(batch["labels_at"]),
            "replaced": int((batch["tokens"] >= 0 if mask is None else mask).sum()),
        }


class ReplacedTokenOutputs(NamedTuple):
    logits_TV: Tensor  # of the generator, at the chosen positions
    drawn_T: Tensor  # tokens sampled from the generator
    replaced_BL: Tensor  # the discriminator's logit that a token was replaced


class ReplacedTokenLoss(Loss):
    def __init__(self, task: R.ReplacedTokenDetection, context: TaskContext) -> None:
        super().__init__(task, context, {"token": 1.0, "replaced": task.discriminator_weight})
        self.generator = build(
            task.generator, dtype=context.dtype, seed=parameter_seed(context.seed, "generator")
        )
        share_embeddings(self.model, self.generator)

    def forward_outputs(self, batch: Batch) -> ReplacedTokenOutputs:
        tokens_BL = batch["tokens"]
        at_T = batch["labels_at"]
        hidden = self.generator.encode(self.generator.embed(tokens_BL, **masks(batch)))
        logits_TV = logits_at(self.generator, hidden, at_T)
        drawn_T = sample_tokens(logits_TV.detach()[: len(at_T)], batch["uniform"].flatten()[at_T])
        filled_BL = tokens_BL.flatten().index_copy(0, at_T, drawn_T).view_as(tokens_BL)
        replaced_BL1 = self.model.read(
            self.model.encode(self.model.embed(filled_BL, **masks(batch)))
        )
        assert isinstance(replaced_BL1, Tensor)
        return ReplacedTokenOutputs(logits_TV, drawn_T, replaced_BL1[..., 0])

    def loss_sums(self, answer: ReplacedTokenOutputs, batch: Batch) -> dict[str, Tensor]:
        """A sampled token that equals the original counts as original."""
        score_BL = answer.replaced_BL
        label_T = selected_labels(batch)
        mask_BL = attention_mask(batch, "tokens")
        score_BL = score_BL.to(accumulation_dtype(score_BL))
        truth_BL = (
            torch.zeros_like(score_BL)
            .flatten()
            .index_copy(0, batch["labels_at"], (answer.drawn_T != label_T).to(score_BL.dtype))
            .view_as(score_BL)
        )
        each_BL = F.binary_cross_entropy_with_logits(score_BL, truth_BL, reduction="none")
        return {
            "token": cross_entropy(answer.logits_TV, label_T),
            "replaced": (each_BL if mask_BL is None else each_BL.masked_fill(~mask_BL, 0.0)).sum(),
        }


def sample_tokens(logits_TV: Tensor, uniform_T: Tensor) -> Tensor:
    """Sample tokens by inverse transform: the token at which the cumulative softmax reaches a
    number in (0, 1]; never one of probability 0.
    """
    drawn_T = torch.empty_like(uniform_T, dtype=torch.long)
    for rows, x_TV in row_chunks(logits_TV):
        sum_TV = x_TV.softmax(-1).cumsum(-1)
        drawn_T[rows] = torch.searchsorted(
            sum_TV, (1 - uniform_T[rows, None]).to(sum_TV.dtype) * sum_TV[:, -1:]
        )[:, 0]
    return drawn_T


def share_embeddings(model: Model, generator: Model) -> None:
    """Share the token table between both models, and those of positions and token types where the
    shapes agree (section 3.2).
    """
    for name in ("tokens", "positions", "segments"):
        model_embedding = getattr(model.source, name)
        generator_embedding = getattr(generator.source, name)
        if (
            isinstance(model_embedding, nn.Embedding | LearnedPositionsLayer)
            and isinstance(generator_embedding, nn.Embedding | LearnedPositionsLayer)
            and model_embedding.weight.shape == generator_embedding.weight.shape
        ):
            generator_embedding.weight = model_embedding.weight


class ReplacedTokenDetectionTask(TaskImplementation):
    preprocess_class = ReplacedTokenPreprocess
    loss_class = ReplacedTokenLoss
