"""Tell original from replaced tokens, which a small generator proposes (ELECTRA, arXiv:2003.10555, sections 2 and 3.2)."""
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..count import table_width, vocabulary
from ..layers.loss import pieces, wide
from ..model.model import Model, build
from ..model.start import number
from . import masked
from .base import Batch, Objective, Reader, Row, Setting, asks, cross_entropy, experts, labels_at, read_at


class Corrupt(masked.Corrupt):
    """Every chosen token is masked; beside it travels the uniform number by which the generator's word is drawn."""
    terms: tuple[str, ...]

    def __init__(self, value: R.ReplacedTokens, setting: Setting) -> None:
        asks(value, setting, encoder=True, head=S.Tags)
        asks(value, setting._replace(spec=value.generator), encoder=True)
        super().__init__(R.MaskedTokens(share=value.share, masked=1.0, random=0.0), setting, head=S.Tags)
        if isinstance(setting.spec.head, S.Tags) and setting.spec.head.outputs != 1:
            raise ValueError(f"ReplacedTokens asks one score a token: Tags(outputs=1), not {setting.spec.head.outputs}")
        if experts(value.generator):
            raise ValueError("ReplacedTokens balances the experts of the model alone; give the generator Dense or Gated layers")
        ours, theirs = ((vocabulary(m), table_width(m)) for m in (setting.spec, value.generator))
        if ours != theirs:
            raise ValueError(f"generator and model share one token table; the generator's is {theirs}, the model's {ours}")
        self.fields["uniform"] = ("tokens", 0)
        self.terms = ("token", "replaced")

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        row = super().__call__(samples, index, draw)
        return {**row, "uniform": draw.random(len(row["tokens"]), np.float32)}

    def units(self, batch: Batch) -> dict[str, int]:
        keep = batch.get("tokens_keep")
        return {"token": len(batch["labels_at"]), "replaced": int((batch["tokens"] >= 0 if keep is None else keep != 0).sum())}


class Answer(NamedTuple):
    logits_TV: Tensor                      # of the generator, at the chosen places
    drawn_T: Tensor                        # what it says there
    replaced_BL: Tensor                    # the discriminator's score that a token is not the text's


class Score(Objective):
    def __init__(self, value: R.ReplacedTokens, setting: Setting) -> None:
        super().__init__(setting, {"token": 1.0, "replaced": value.weight})
        self.generator = build(value.generator, dtype=setting.dtype, seed=number(setting.seed, "generator"))
        share_tables(self.model, self.generator)

    def answer(self, batch: Batch) -> Answer:
        tokens_BL, keep, at_T = batch["tokens"], batch.get("tokens_keep"), batch["labels_at"]
        hidden = self.generator.encode(self.generator.embed(tokens_BL, keep=keep))
        logits_TV = read_at(self.generator, hidden, at_T)
        drawn_T = draw(logits_TV.detach()[:len(at_T)], batch["uniform"].flatten()[at_T])
        filled_BL = tokens_BL.flatten().index_copy(0, at_T, drawn_T).view_as(tokens_BL)
        replaced_BL1 = self.model.read(self.model.encode(self.model.embed(filled_BL, keep=keep)))
        assert isinstance(replaced_BL1, Tensor)
        return Answer(logits_TV, drawn_T, replaced_BL1[..., 0])

    def score(self, answer: Answer, batch: Batch) -> dict[str, Tensor]:
        """A drawn token that is the text's own counts as original."""
        score_BL, label_T, keep = answer.replaced_BL, labels_at(batch), batch.get("tokens_keep")
        score_BL = score_BL.to(wide(score_BL))
        truth_BL = torch.zeros_like(score_BL).flatten().index_copy(
            0, batch["labels_at"], (answer.drawn_T != label_T).to(score_BL.dtype)).view_as(score_BL)
        each_BL = F.binary_cross_entropy_with_logits(score_BL, truth_BL, reduction="none")
        return {"token": cross_entropy(answer.logits_TV, label_T),
                "replaced": (each_BL if keep is None else each_BL.masked_fill(keep == 0, 0.0)).sum()}


def draw(logits_TV: Tensor, uniform_T: Tensor) -> Tensor:
    """The token at which the softmax, summed up, reaches a number in (0, 1]: never one without a chance."""
    drawn_T = torch.empty_like(uniform_T, dtype=torch.long)
    for rows, x_TV in pieces(logits_TV):
        sum_TV = x_TV.softmax(-1).cumsum(-1)
        drawn_T[rows] = torch.searchsorted(sum_TV, (1 - uniform_T[rows, None]).to(sum_TV.dtype) * sum_TV[:, -1:])[:, 0]
    return drawn_T


def share_tables(model: Model, generator: Model) -> None:
    """One table of tokens for both, and of positions and segments where the shapes agree (section 3.2)."""
    for name in ("tokens", "positions", "segments"):
        ours, theirs = getattr(model.source, name), getattr(generator.source, name)
        if isinstance(ours, nn.Embedding) and isinstance(theirs, nn.Embedding) and ours.weight.shape == theirs.weight.shape:
            theirs.weight = ours.weight
