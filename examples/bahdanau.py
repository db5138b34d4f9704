r"""The recurrent encoder-decoder that attention replaced: translation with an alignment (Bahdanau
et al. 2015, arXiv:1409.0473).

    weft train recipes/translate_multi30k.py --code examples/bahdanau.py \
        --set model.encoder=BidirectionalGRU --set model.decoder=BahdanauDecoder
    weft evaluate runs/translate_multi30k --code examples/bahdanau.py

Two stacks of one's own stand in the place of the Transformer's blocks: a bidirectional GRU, and a
GRU with additive attention. Task, data, loop, exact resume, beam search and BLEU are Weft's. The
loop over the target's tokens is the recurrence itself: each state attends before the next one is
known. `python -m benchmarks.recurrent` compares both.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import weft
from weft.nn.layers.roles import Role, with_role
from weft.nn.layers.sequence import HiddenStates

# Values


@weft.register
class BidirectionalGRU(weft.Stack):
    """The encoder: annotations of each token from both sides (section 3.2), half of the width
    each.
    """

    blocks: tuple[weft.Block | weft.ParallelBlock, ...] = ()

    def flops(self, width: int, tokens: int, memory: int) -> int:
        """Two directions, each with a map of the inputs and one of the state to three gates."""
        half = width // 2
        return 2 * tokens * 2 * 3 * half * (width + half)


@weft.register
class BahdanauDecoder(weft.Stack):
    """The decoder: a GRU that reads the token before and what it attends to with the state before
    (section 3.1).
    """

    blocks: tuple[weft.Block | weft.ParallelBlock, ...] = ()

    def flops(self, width: int, tokens: int, memory: int) -> int:
        """Keys and the first state once; for each token a query, scores, a context, three gates and
        the maxout layer.
        """
        step = width * width + 2 * memory * width + 3 * width * 3 * width + 3 * width * 2 * width
        return 2 * (memory * width * width + width * width // 2 + tokens * step)


def bahdanau(width: int, vocab_size: int) -> weft.Spec:
    """One table for both languages and the head, as the Transformer beside it has."""
    return weft.Spec(
        width=width,
        source=weft.Tokens(vocab_size=vocab_size, embedding_scale=width**0.5),
        target=weft.SharedTokens(embedding_scale=width**0.5),
        encoder=BidirectionalGRU(),
        decoder=BahdanauDecoder(),
        head=weft.LMHead(),
        init=weft.XavierInit(),
    )


# Layers


def fill_orthogonal(weight: Tensor, generator: torch.Generator) -> None:
    """Each gate's map of the state is orthogonal (appendix B.1)."""
    for gate in weight.chunk(3):
        nn.init.orthogonal_(gate, generator=generator)


def with_gru_roles(gru: Any) -> Any:
    """Say what torch's GRU and GRUCell have: maps of inputs, orthogonal maps of the state,
    biases.
    """
    names = [name for name, _ in gru.named_parameters()]
    with_role(gru, Role.MATRIX)
    with_role(gru, Role.MATRIX, *(n for n in names if "weight_hh" in n), formula=fill_orthogonal)
    return with_role(gru, Role.BIAS, *(n for n in names if n.startswith("bias")))


def matrix(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    return with_role(nn.Linear(inputs, outputs, bias=bias), Role.MATRIX)


class RecurrentLayer(nn.Module):
    """What a model asks of every stack."""

    position_bias = None

    def in_order(self) -> list[nn.Module]:
        """There are no blocks between the input and the output."""
        return []


@weft.implements(BidirectionalGRU)
class BidirectionalGRULayer(RecurrentLayer):
    def __init__(self, stack: BidirectionalGRU, width: int, layers: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.gru = with_gru_roles(nn.GRU(width, width // 2, batch_first=True, bidirectional=True))

    def forward(self, sequence: HiddenStates) -> HiddenStates:
        x_BLD = sequence.x_BLD
        mask_BL = sequence.attention_mask_BL
        if sequence.document_ids_BL is not None:
            raise ValueError("a recurrent encoder reads one document per row; do not pack them")
        if mask_BL is None:
            return replace(sequence, x_BLD=self.gru(x_BLD)[0])
        # the backward direction must start at a row's last token, not in its padding
        lengths = mask_BL.sum(1).cpu()
        packed = pack_padded_sequence(x_BLD, lengths, batch_first=True, enforce_sorted=False)
        y_BLD, _ = pad_packed_sequence(
            self.gru(packed)[0], batch_first=True, total_length=x_BLD.shape[1]
        )
        return replace(sequence, x_BLD=y_BLD)


class RecurrentState:
    """What decoding keeps of each row, in the cache's place of keys and values."""

    memory = None  # nothing of the encoder's output: rows of it are chosen by the session

    def __init__(self, state_BD: Tensor) -> None:
        self.state_BD = state_BD

    def take(self, row_B: Tensor, *_: object) -> None:
        self.state_BD = self.state_BD[row_B]


@weft.implements(BahdanauDecoder)
class BahdanauDecoderLayer(RecurrentLayer):
    def __init__(self, stack: BahdanauDecoder, width: int, layers: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.first = matrix(width // 2, width, bias=True)
        self.query = matrix(width, width)
        self.key = matrix(width, width, bias=True)
        self.score = matrix(width, 1)
        self.cell = with_gru_roles(nn.GRUCell(2 * width, width))
        self.output = matrix(3 * width, 2 * width, bias=True)
        self.weights: list[Tensor] | None = None  # a list collects each step's alignment

    def forward(
        self, sequence: HiddenStates, memory: HiddenStates, cache: Any = None, *_: object
    ) -> HiddenStates:
        y_BLD = sequence.x_BLD
        h_BMD = memory.x_BLD
        beams = len(sequence.x_BLD) // len(memory.x_BLD)
        key_BMD = self.key(h_BMD)
        if cache is not None and cache.blocks:
            state_BD = cache.blocks[0].state_BD
        else:  # from the backward annotation of the first token (appendix A.2.2)
            state_BD = self.first(h_BMD[:, 0, h_BMD.shape[2] // 2 :]).tanh()
        outputs = []
        for step, token_BD in enumerate(y_BLD.unbind(1)):
            context_BD = self.attend(state_BD, h_BMD, key_BMD, memory.attention_mask_BL, beams)
            after_BD = self.cell(torch.cat((token_BD, context_BD), -1), state_BD)
            if cache is not None and sequence.attention_mask_BL is not None:
                after_BD = after_BD.where(sequence.attention_mask_BL[:, step, None], state_BD)
            state_BD = after_BD
            outputs.append(torch.cat((state_BD, token_BD, context_BD), -1))
        if cache is not None:
            cache.blocks[:] = [RecurrentState(state_BD)]
        pairs_BLD2 = self.output(torch.stack(outputs, 1)).unflatten(-1, (-1, 2))
        return replace(sequence, x_BLD=pairs_BLD2.amax(-1))  # maxout

    def attend(
        self,
        state_BD: Tensor,
        h_BMD: Tensor,
        key_BMD: Tensor,
        mask_BM: Tensor | None,
        beams: int,
    ) -> Tensor:
        """score(tanh(W s + U h)) of each annotation; the beams of one sentence share its
        annotations.
        """
        query_BND = self.query(state_BD).unflatten(0, (-1, beams))
        hidden_BNMD = (query_BND[:, :, None] + key_BMD[:, None]).tanh()
        score_BNM = self.score(hidden_BNMD)[..., 0]
        if mask_BM is not None:
            score_BNM = score_BNM.masked_fill(~mask_BM.bool()[:, None], float("-inf"))
        weight_BNM = score_BNM.softmax(-1)
        if self.weights is not None:
            self.weights.append(weight_BNM.flatten(0, 1))
        return (weight_BNM @ h_BMD).flatten(0, 1)
