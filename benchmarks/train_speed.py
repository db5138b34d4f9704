"""Compare the speed of whole optimiser steps with transformers (same model, weights, loss and
optimiser) and with the matrix products alone, in one process.

    python -m benchmarks.train_speed [--rounds 12] [--only gpt2] [--receipt FILE]

A step: forward, loss, backward, fused AdamW, zero_grad; bf16 autocast over fp32 weights. BERT's
sequences have ragged lengths. We read them packed and compute the head at masked places alone;
transformers reads them padded to the longest (`bert`), as its collator gives them, or the same
packed rows with a mask of blocks (`bert_packed`). First both losses and gradient norms are compared
in fp32; where they differ nothing is measured. The bare kernels are the step's matrix products,
forward and backward, in bf16, and nothing else: `share` is their time over ours. A time is the best
of all rounds, which alternate; a ratio (above 1: we are faster) is the median over rounds of
neighbours, so a busy machine slows both. The last line is JSON: model/dropout -> times in
milliseconds, ratio, share.
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers as T
from torch import Tensor

import weft
from weft.nn.kernels.cross_entropy import IGNORE_INDEX, cross_entropy
from weft.nn.layers.sequence import HiddenStates

from . import command, receipt

DEPTH = 6
WIDTH = 384
HEADS = 6
HIDDEN = 1536
BATCH = 8
LENGTH = 256
VOCABULARY = 8192
MASK = 4
GOAL = {0.1: 2.0, 0.0: 1.3}


class Case(NamedTuple):
    other: Any
    ours: weft.Model
    our_loss: Callable[[], Tensor]  # the mean over labels
    their_loss: Callable[[], Tensor]
    rows: int  # of LENGTH tokens, as we read them
    labels: int  # vectors that our head reads


def same_weights(other: Any) -> weft.Model:
    with tempfile.TemporaryDirectory() as folder:
        other.save_pretrained(folder)
        return weft.load(folder).train()


def gpt2(dropout: float) -> Case:
    other = T.GPT2LMHeadModel(
        T.GPT2Config(
            n_layer=DEPTH,
            n_embd=WIDTH,
            n_head=HEADS,
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            resid_pdrop=dropout,
            attn_pdrop=dropout,
            embd_pdrop=dropout,
            use_cache=False,
        )
    ).train()
    ours = same_weights(other)
    ids = torch.randint(5, VOCABULARY, (BATCH, LENGTH))
    label = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=IGNORE_INDEX).flatten()
    many = int((label != IGNORE_INDEX).sum())
    return Case(
        other,
        ours,
        lambda: cross_entropy(ours(ids).flatten(0, 1), label) / many,
        lambda: other(ids, labels=ids).loss,
        BATCH,
        BATCH * LENGTH,
    )


def ragged(mean: float = 110.0, full: float = 0.97) -> list[Tensor]:
    """Sequences of log-normal lengths, 20 to LENGTH, with nearly as many tokens as BATCH full
    rows.
    """
    random = torch.Generator().manual_seed(3)
    lengths: list[int] = []
    while True:
        lengths.append(
            min(
                max(int(torch.randn((), generator=random).mul(0.5).exp() * mean * 0.88), 20), LENGTH
            )
        )
        if sum(lengths) > full * BATCH * LENGTH:
            return [torch.randint(5, VOCABULARY, (n,)) for n in lengths[:-1]]


def pack(lengths: list[int]) -> list[list[int]]:
    """First fit, the longest first: which sequences share a row."""
    rows: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fits = next(
            (row for row in rows if sum(lengths[j] for j in row) + lengths[i] <= LENGTH), None
        )
        if fits is None:
            rows.append([i])
        else:
            fits.append(i)
    return rows


class Packed(NamedTuple):
    """Several sequences in each row, and which of them a token belongs to, from 1; 0 is padding."""

    ids_BL: Tensor
    labels_BL: Tensor
    document_ids_BL: Tensor
    position_ids_BL: Tensor


def pack_rows(ids: list[Tensor], labels: list[Tensor]) -> Packed:
    rows = pack([len(t) for t in ids])

    def joined(parts: Callable[[int, int], Tensor], value: int = 0) -> Tensor:
        lines = [torch.cat([parts(n, i) for n, i in enumerate(row)]) for row in rows]
        return torch.stack(
            [torch.nn.functional.pad(line, (0, LENGTH - len(line)), value=value) for line in lines]
        )

    return Packed(
        joined(lambda _, i: ids[i]),
        joined(lambda _, i: labels[i], IGNORE_INDEX),
        joined(lambda n, i: torch.full((len(ids[i]),), n + 1)),
        joined(lambda _, i: torch.arange(len(ids[i]))),
    )


def padded_batch(ids: list[Tensor], labels: list[Tensor]) -> dict[str, Tensor]:
    """What transformers' collator gives: rows padded to the longest, one sequence each."""
    pad = torch.nn.utils.rnn.pad_sequence
    return {
        "input_ids": pad(ids, batch_first=True),
        "attention_mask": pad([torch.ones_like(t) for t in ids], batch_first=True),
        "labels": pad(labels, batch_first=True, padding_value=IGNORE_INDEX),
    }


def packed_batch(packed: Packed) -> dict[str, Tensor]:
    """The packed rows as transformers reads them: a mask of blocks, (batch, 1, query, key), and
    positions that restart.
    """
    document_BL = packed.document_ids_BL
    return {
        "input_ids": packed.ids_BL,
        "attention_mask": (document_BL[:, None, :, None] == document_BL[:, None, None, :]),
        "position_ids": packed.position_ids_BL,
        "labels": packed.labels_BL,
    }


def bert(dropout: float, transformers_packs: bool = False) -> Case:
    other = T.BertForMaskedLM(
        T.BertConfig(
            num_hidden_layers=DEPTH,
            hidden_size=WIDTH,
            num_attention_heads=HEADS,
            intermediate_size=HIDDEN,
            vocab_size=VOCABULARY,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
    ).train()
    ours = same_weights(other)
    whole = ragged()
    hidden = [torch.rand(len(ids)) < 0.15 for ids in whole]
    ids = [torch.where(hide, MASK, t) for t, hide in zip(whole, hidden, strict=True)]
    labels = [torch.where(hide, t, IGNORE_INDEX) for t, hide in zip(whole, hidden, strict=True)]
    packed = pack_rows(ids, labels)
    batch = packed_batch(packed) if transformers_packs else padded_batch(ids, labels)
    at_T = (packed.labels_BL.flatten() != IGNORE_INDEX).nonzero()[:, 0]
    wanted_T = packed.labels_BL.flatten()[at_T]

    def loss() -> Tensor:
        sequence = ours.encode(ours.embed(packed.ids_BL, document_ids=packed.document_ids_BL))
        logits = ours.read(HiddenStates(sequence.x_BLD.flatten(0, 1)[None, at_T]))
        assert isinstance(logits, Tensor)
        return cross_entropy(logits[0], wanted_T) / len(wanted_T)

    return Case(other, ours, loss, lambda: other(**batch).loss, len(packed.ids_BL), len(at_T))


def bert_packed(dropout: float) -> Case:
    """Both sides read the packed rows."""
    return bert(dropout, transformers_packs=True)


def refuse_unless_equal(case: Any) -> None:
    """Without dropout, in fp32: the same loss and the same length of the whole gradient."""
    found = []
    for model, loss in ((case.ours, case.our_loss), (case.other, case.their_loss)):
        model.eval()
        value = loss()
        value.backward()
        found.append(
            (
                value.item(),
                torch.nn.utils.get_total_norm(
                    [p.grad for p in model.parameters() if p.grad is not None]
                ).item(),
            )
        )
        model.zero_grad()
        model.train()
    for ours, theirs, what in zip(*found, ("losses", "gradient norms"), strict=True):
        if not abs(ours - theirs) <= 1e-5 * abs(theirs):
            sys.exit(f"the {what} differ, so no step is timed: ours {ours}, transformers' {theirs}")


def step_of(model: Any, loss: Callable[[], Tensor]) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            value = loss()
        value.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def bare_kernels(case: Case) -> Callable[[], None]:
    """Every matrix product of our step, on bf16 tensors that lie ready: y = x w, and both
    gradients.
    """
    tokens = case.rows * LENGTH
    head_width = WIDTH // HEADS
    linears = [(tokens, WIDTH, WIDTH)] * 4 + [(tokens, WIDTH, HIDDEN), (tokens, HIDDEN, WIDTH)]
    attention = [(LENGTH, head_width, LENGTH), (LENGTH, LENGTH, head_width)]
    head = [(case.labels, WIDTH, VOCABULARY)]
    if case.labels != tokens:
        head.append((case.labels, WIDTH, WIDTH))
    calls: list[tuple[Tensor, Tensor, Tensor]] = []

    def product(many: int, rows: int, inner: int, columns: int) -> None:
        x, w, y = (
            torch.randn(many, *shape).bfloat16()
            for shape in ((rows, inner), (inner, columns), (rows, columns))
        )
        calls.extend(((x, w, y), (y, w.mT, torch.empty_like(x)), (x.mT, y, torch.empty_like(w))))

    for _ in range(DEPTH):
        for shape in linears:
            product(1, *shape)
        for shape in attention:
            product(case.rows * HEADS, *shape)
    for shape in head:
        product(1, *shape)

    def run() -> None:
        for a, b, out in calls:
            torch.matmul(a[0], b[0], out=out[0]) if len(a) == 1 else torch.bmm(a, b, out=out)

    return run


def race(runs: list[Callable[[], None]], rounds: int) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in runs]
    for i in range(rounds + 2):
        for j in range(len(runs)):
            which = (i + j) % len(runs)
            start = time.perf_counter()
            runs[which]()
            if i >= 2:
                times[which].append(time.perf_counter() - start)
    return times


def measure(case: Case, rounds: int) -> dict[str, float]:
    refuse_unless_equal(case)
    ours, theirs, bare = race(
        [
            step_of(case.ours, case.our_loss),
            step_of(case.other, case.their_loss),
            bare_kernels(case),
        ],
        rounds,
    )
    return {
        "weft": round(min(ours) * 1e3, 1),
        "transformers": round(min(theirs) * 1e3, 1),
        "bare kernels": round(min(bare) * 1e3, 1),
        "ratio": round(statistics.median(t / o for o, t in zip(ours, theirs, strict=True)), 2),
        "share": round(statistics.median(b / o for o, b in zip(ours, bare, strict=True)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default="")
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt")
    given = parser.parse_args()
    began = time.perf_counter()
    logging.disable(logging.WARNING)
    T.utils.logging.disable_progress_bar()
    found: dict[str, dict[str, float]] = {}
    print("model       dropout   weft ms  transformers ms  ratio  goal  bare ms  share", flush=True)
    for make in (gpt2, bert, bert_packed):
        for dropout in GOAL:
            if given.only not in ("", make.__name__):
                continue
            torch.manual_seed(0)
            row = found[f"{make.__name__}/dropout {dropout}"] = measure(make(dropout), given.rounds)
            print(
                f"{make.__name__:11} {dropout:7} {row['weft']:9.1f} {row['transformers']:16.1f} "
                f"{row['ratio']:6.2f} {GOAL[dropout]:5} "
                f"{row['bare kernels']:8.1f} {row['share']:6.2f}",
                flush=True,
            )
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began)
    print(json.dumps(found))
    sys.exit(any(row["ratio"] < GOAL[float(key.rsplit(" ", 1)[1])] for key, row in found.items()))


if __name__ == "__main__":
    command.run(main)
