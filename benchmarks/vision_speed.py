"""Compare the speed of whole optimiser steps of image models with transformers: the same model,
weights, loss and optimiser, alternating in one process.

    python -m benchmarks.vision_speed [--rounds 12] [--only swin] [--precision fp32 bf16]
        [--receipt FILE]

A step: forward, loss, backward, fused AdamW, zero_grad, as in benchmarks.train_speed; by default
with bf16 autocast where the machine multiplies bf16 fast, else in fp32. First both losses and
gradient norms are compared in fp32; where they differ nothing is measured. A time is the best of
all rounds; a ratio (above 1: we are faster) is the median over rounds of neighbours. The kernel
share is the part of transformers' step in products, convolutions and fused attention: no ratio can
exceed 1 / share unless we make these faster, as attention in bf16. The last line is JSON:
model/precision -> times in milliseconds, ratio, kernel share.
"""

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from typing import Any, NamedTuple

import torch
import transformers as T
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import weft
from weft import recipe as R
from weft.data.shards.store import DataInfo
from weft.nn.kernels.cross_entropy import cross_entropy
from weft.nn.kernels.devices import resolve_precision
from weft.tasks import build_task

from . import command, receipt
from .train_speed import race, refuse_unless_equal, same_weights

CLASSES = 100
KERNELS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "convolution",
    "aten::_scaled_dot",
)
GOAL = {"vit": 1.5, "swin": 1.5, "detr": 1.0}


class Case(NamedTuple):
    other: Any
    ours: weft.Model
    our_loss: Callable[[], Tensor]
    their_loss: Callable[[], Tensor]


def classifier(other: Any, batch: int, side: int) -> Case:
    ours = same_weights(other)
    image = torch.randn(batch, 3, side, side)
    label = torch.randint(CLASSES, (batch,))

    def our_loss() -> Tensor:
        logits = ours(image)
        assert isinstance(logits, Tensor)
        return cross_entropy(logits, label) / batch

    return Case(other.train(), ours, our_loss, lambda: other(image, labels=label).loss)


def vit() -> Case:
    """DeiT-Ti's shape, 196 patches and a class token."""
    config: dict[str, Any] = dict(
        num_hidden_layers=12,
        hidden_size=192,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=224,
        patch_size=16,
        num_labels=CLASSES,
    )
    return classifier(T.ViTForImageClassification(T.ViTConfig(**config)), 8, 224)


def swin() -> Case:
    """Half of Swin-T's width, as many stages, windows and blocks but in the third stage."""
    config: dict[str, Any] = dict(
        embed_dim=48,
        depths=(2, 2, 2, 2),
        num_heads=(3, 6, 12, 24),
        image_size=224,
        patch_size=4,
        window_size=7,
        drop_path_rate=0.0,
        num_labels=CLASSES,
    )
    return classifier(T.SwinForImageClassification(T.SwinConfig(**config)), 4, 224)


def detr() -> Case:
    """A small detector from scratch: matching and auxiliary losses included, no dropout, the whole
    backbone trained.
    """
    backbone: dict[str, Any] = dict(
        embedding_size=32,
        hidden_sizes=[64, 128, 256],
        depths=[1, 1, 1],
        out_features=["stage3"],
    )
    config: dict[str, Any] = dict(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=T.ResNetConfig(**backbone),
        d_model=128,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        num_queries=25,
        num_labels=10,
        dropout=0.0,
        auxiliary_loss=True,
    )
    other = T.DetrForObjectDetection(T.DetrConfig(**config))
    for parameter in other.parameters():
        parameter.requires_grad_(True)
    batch = 16
    boxes = 5
    image = torch.randn(batch, 3, 128, 128)
    label = torch.randint(10, (batch, boxes))
    box = torch.rand(batch, boxes, 4) * 0.4 + 0.2
    ours = same_weights(other)
    data = DataInfo(R.ImagesWithBoxes(), labels=tuple("0123456789"))
    task = build_task(R.Detection(), ours.spec, data, model=ours)
    given = {"image": image, "labels": label, "boxes": box}
    counts = task.preprocess.loss_counts({"labels": label.numpy(), "boxes": box.numpy()})

    def our_loss() -> Tensor:
        sums = task.loss.loss_sums(task.loss.forward_outputs(given), given)
        terms = (task.loss.weights[term] * sums[term] / counts[term] for term in sums)
        return sum(terms, torch.zeros(()))

    theirs = [{"class_labels": label[i], "boxes": box[i]} for i in range(batch)]
    return Case(other.train(), ours, our_loss, lambda: other(image, labels=theirs).loss)


def step_of(model: Any, loss: Callable[[], Tensor], precision: str) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True
    )

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext():
            value = loss()
        value.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def kernel_share(step: Callable[[], None]) -> float:
    """The share of a step's time in matrix products, convolutions and fused attention, which both
    sides call alike.
    """
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    times = {event.key: event.self_cpu_time_total for event in profiled.key_averages()}
    shared = sum(time for name, time in times.items() if any(word in name for word in KERNELS))
    return float(shared / sum(times.values()))


def measure(case: Case, rounds: int, precision: str) -> dict[str, float]:
    refuse_unless_equal(case)
    steps = [
        step_of(case.ours, case.our_loss, precision),
        step_of(case.other, case.their_loss, precision),
    ]
    ours, theirs = race(steps, rounds)
    return {
        "weft": round(min(ours) * 1e3, 1),
        "transformers": round(min(theirs) * 1e3, 1),
        "ratio": round(statistics.median(t / o for o, t in zip(ours, theirs, strict=True)), 2),
        "kernel_share": round(kernel_share(steps[1]), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default="", choices=("", *GOAL))
    parser.add_argument(
        "--precision",
        nargs="+",
        default=[resolve_precision("auto", torch.device("cpu"))],
        choices=("fp32", "bf16"),
    )
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt")
    options = parser.parse_args()
    start_time = time.perf_counter()
    logging.disable(logging.WARNING)
    T.utils.logging.disable_progress_bar()
    results: dict[str, dict[str, float]] = {}
    print("model      weft ms  transformers ms  ratio  goal  kernel share", flush=True)
    for make, precision in product((vit, swin, detr), options.precision):
        name = make.__name__
        if options.only not in ("", name):
            continue
        torch.manual_seed(0)
        row = results[f"{name}/{precision}"] = measure(make(), options.rounds, precision)
        print(
            f"{name + '/' + precision:9} {row['weft']:8.1f} {row['transformers']:16.1f} "
            f"{row['ratio']:6.2f} {GOAL[name]:5} {row['kernel_share']:13.2f}",
            flush=True,
        )
    if options.receipt:
        receipt.write(options.receipt, results, time.perf_counter() - start_time)
    print(json.dumps(results))
    sys.exit(any(row["ratio"] < GOAL[key.split("/")[0]] for key, row in results.items()))


if __name__ == "__main__":
    command.run(main)
