"""Compare the speed of forward and forward+backward with transformers: the same model and weights,
alternating in one process.

    python -m benchmarks.families [--rounds 15] [--only gpt2]

Dropout is off on both sides (training speed with dropout is another benchmark); transformers runs
with its default kernel (SDPA). A time is the best of all rounds; a ratio (above 1: we are faster)
is the median over rounds of two neighbours, so a busy machine slows both. The last line is JSON:
model/precision/pass -> both times in milliseconds and their ratio.
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import transformers as T

import weft

from . import command, receipt

SIZE: dict[str, Any] = dict(
    num_hidden_layers=6, hidden_size=384, num_attention_heads=6, intermediate_size=1536
)
BATCH = 8
LENGTH = 256
VOCABULARY = 8192


def text(targets: bool = False) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, VOCABULARY, (BATCH, LENGTH))
    return {"input_ids": ids} | (
        {"decoder_input_ids": torch.randint(5, VOCABULARY, (BATCH, LENGTH))} if targets else {}
    )


def cases() -> dict[str, tuple[Any, dict[str, torch.Tensor]]]:
    return {
        "bert": (
            T.BertForMaskedLM(
                T.BertConfig(
                    **SIZE,
                    vocab_size=VOCABULARY,
                    hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0,
                )
            ),
            text(),
        ),
        "gpt2": (
            T.GPT2LMHeadModel(
                T.GPT2Config(
                    n_layer=6,
                    n_embd=384,
                    n_head=6,
                    vocab_size=VOCABULARY,
                    n_positions=LENGTH,
                    resid_pdrop=0.0,
                    attn_pdrop=0.0,
                    embd_pdrop=0.0,
                    use_cache=False,
                )
            ),
            text(),
        ),
        "t5": (
            T.T5ForConditionalGeneration(
                T.T5Config(
                    num_layers=6,
                    d_model=384,
                    num_heads=6,
                    d_kv=64,
                    d_ff=1536,
                    vocab_size=VOCABULARY,
                    dropout_rate=0.0,
                    use_cache=False,
                )
            ),
            text(targets=True),
        ),
        "vit": (
            T.ViTForImageClassification(
                T.ViTConfig(  # type: ignore[call-arg]  # its own dataclass lacks num_labels
                    num_hidden_layers=9,
                    hidden_size=192,
                    num_attention_heads=3,
                    intermediate_size=768,
                    image_size=32,
                    patch_size=4,
                    num_labels=10,
                )
            ),
            {"pixel_values": torch.randn(BATCH, 3, 32, 32)},
        ),
    }


def ours_of(other: Any) -> weft.Model:
    with tempfile.TemporaryDirectory() as folder:
        other.save_pretrained(folder)
        return weft.load(folder)


def passes(run: Callable[[], torch.Tensor], bf16: bool, backward: bool) -> Callable[[], None]:
    def once() -> None:
        with (
            torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext(),
            torch.set_grad_enabled(backward),
        ):
            loss = run().float().square().mean()
        if backward:
            loss.backward()

    return once


def race(
    ours: Callable[[], None], theirs: Callable[[], None], rounds: int
) -> tuple[list[float], list[float]]:
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(rounds + 2):
        for which, run in ((0, ours), (1, theirs)) if i % 2 else ((1, theirs), (0, ours)):
            start = time.perf_counter()
            run()
            if i >= 2:
                times[which].append(time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt")
    given = parser.parse_args()
    began = time.perf_counter()
    logging.disable(logging.WARNING)
    T.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    found: dict[str, dict[str, float]] = {}
    print(
        f"{'model':6} {'precision':9} {'pass':17} {'weft ms':>9} {'transformers ms':>16} "
        f"{'ratio':>6}",
        flush=True,
    )
    for name, (other, batch) in cases().items():
        if given.only and name != given.only:
            continue
        ours = ours_of(other)
        inputs = list(batch.values())
        for backward in (False, True):
            for model in (ours, other):
                model.train(backward)
            for bf16 in (False, True):
                mine = passes(lambda: ours(*inputs), bf16, backward)  # noqa: B023
                its = passes(lambda: other(**batch).logits, bf16, backward)  # noqa: B023
                times = race(mine, its, given.rounds)
                a, b = (min(t) * 1e3 for t in times)
                ratio = statistics.median(
                    theirs / ours for ours, theirs in zip(*times, strict=True)
                )
                for model in (ours, other):
                    model.zero_grad()
                precision = "bf16" if bf16 else "fp32"
                direction = "forward+backward" if backward else "forward"
                key = f"{name}/{precision}/{direction}"
                found[key] = {
                    "weft": round(a, 2),
                    "transformers": round(b, 2),
                    "ratio": round(ratio, 3),
                }
                print(
                    f"{name:6} {'bf16' if bf16 else 'fp32':9} {key.rsplit('/', 1)[1]:17} {a:9.1f} "
                    f"{b:16.1f} {ratio:6.2f}",
                    flush=True,
                )
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began)
    print(json.dumps(found))
    sys.exit(any(row["ratio"] < 0.97 for row in found.values()))


if __name__ == "__main__":
    command.run(main)
