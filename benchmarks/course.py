"""Draw the pictures of the course page that no other benchmark draws.

    # sinusoids, masks, activations, schedules: seconds
    python -m benchmarks.course
    # a small ViT and a small MAE, and what they learned
    python -m benchmarks.course --train [--receipt FILE]

The first four are drawn from Weft's own layers. With `--train`, `recipes/vit.py:fashion_mnist` and
`recipes/mae.py:cifar10` are trained for `--steps` steps each, fewer than they have, into `--runs`,
where finished runs are reused; then the figures of ViT's section 4.5 and of MAE are drawn from
validation images. The last line is JSON.
"""

import argparse
import gzip
import json
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from PIL import Image

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import weft
from weft import observe
from weft import recipe as R
from weft import spec as S
from weft.data.reading.files import find
from weft.runs.logs.log import read_log

from . import command, receipt, trials
from .plots import INK, STYLE, WEFT

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COLOURS = (WEFT, "#d97706", "#4338ca", "#be123c", "#111827", "#84cc16")
LENGTH = 16
SHOWN = 6
Found = dict[str, Any]


def save(figure: Figure, file: Path) -> None:
    """Write a picture without a date, so that the same picture is the same file."""
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


# From the layers alone


def draw_positions(count: int = 64, width: int = 64) -> Figure:
    """Draw the sinusoids, and the product of every two positions."""
    from weft.nn.layers.positions import SinusoidalPositionsLayer

    layer = SinusoidalPositionsLayer(S.SinusoidalPositions(), width)
    table_LD = layer(torch.arange(count)[None], torch.zeros(1, count, width))[0]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained")
    image = left.imshow(table_LD, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    left.set(title="sinusoids", xlabel="channel", ylabel="position")
    figure.colorbar(image, ax=left, label="value")
    image = right.imshow(table_LD @ table_LD.T / (width / 2), cmap="viridis", vmax=1)
    right.set(title="product of two positions", xlabel="position", ylabel="position")
    figure.colorbar(image, ax=right, label="cosine similarity")
    return figure


def attention_weights(pattern: S.Pattern, document_ids_BL: torch.Tensor | None) -> torch.Tensor:
    """Return the weights (L, M) of one random head with this pattern."""
    norm = S.LayerNorm()
    block = S.Block(
        attention=S.pre_norm(norm, S.Attention(heads=1, pattern=pattern)),
        feedforward=S.pre_norm(norm, S.MLP(hidden=8)),
    )
    stack = S.Stack(blocks=(block,), norm=norm)
    causal = not pattern.looks_ahead
    model = weft.build(
        S.Spec(
            width=8,
            source=S.Tokens(vocab_size=50),
            encoder=None if causal else stack,
            decoder=stack if causal else None,
            head=S.LMHead(),
        )
    ).eval()
    with observe.record(model) as recording:
        model(torch.arange(LENGTH)[None], document_ids=document_ids_BL)
    (maps_BHLM,) = recording.maps.values()
    weight_LM: torch.Tensor = maps_BHLM[0, 0]
    return weight_LM


def draw_masks() -> Figure:
    """Draw which weights are not zero, as a model with each pattern computes them."""
    two_documents_BL = torch.tensor([[1] * 9 + [2] * 7])
    cases = {
        "full": (S.FullAttention(), None),
        "causal": (S.CausalAttention(), None),
        "window, 4 each side": (S.SlidingWindow(before=4, after=4), None),
        "causal window of 5": (S.SlidingWindow(before=4, after=0), None),
        "causal, two documents": (S.CausalAttention(), two_documents_BL),
    }
    figure, axes = plt.subplots(1, len(cases), figsize=(11, 2.8), sharey=True, layout="constrained")
    for axis, (name, (pattern, document_ids_BL)) in zip(axes, cases.items(), strict=True):
        seen_LM = attention_weights(pattern, document_ids_BL) > 0
        axis.imshow(seen_LM, cmap="Greens", vmin=0, vmax=1.4)
        axis.title.set_fontsize(10)
        axis.set(title=name, xlabel="key", xticks=[0, 5, 10, 15], yticks=[0, 5, 10, 15])
    axes[0].set_ylabel("query")
    return figure


def draw_activations() -> Figure:
    from weft.nn.layers.activations import ACTIVATIONS

    x = torch.linspace(-4, 3, 281)
    figure, axis = plt.subplots(figsize=(6, 3.4))
    styles = ("-", "-", "--", ":", "-", "-.")
    for (name, function), colour, style in zip(ACTIVATIONS.items(), COLOURS, styles, strict=False):
        axis.plot(x, function(x), style, color=colour, label=name)
    axis.set(xlabel="x", ylabel="activation(x)", ylim=(-1.1, 3))
    axis.legend(frameon=False)
    return figure


def draw_schedules(steps: int = 1000) -> Figure:
    schedules = {
        "constant": R.ConstantSchedule(warmup_steps=100),
        "linear (BERT)": R.LinearSchedule(warmup_steps=100),
        "cosine": R.CosineSchedule(warmup_steps=100),
        "inverse square root (Transformer)": R.InverseSqrt(warmup_steps=100),
        "warmup, stable, decay": R.WarmupStableDecay(warmup_steps=100),
    }
    figure, axis = plt.subplots(figsize=(6, 3.2))
    for (name, schedule), colour in zip(schedules.items(), COLOURS, strict=False):
        axis.plot([schedule.scale(step, steps) for step in range(steps)], color=colour, label=name)
    axis.set(xlabel="step", ylabel="share of the peak learning rate", ylim=(0, 1.05))
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


# From small models that are trained here


def train(name: str, steps: int, runs: Path) -> tuple[R.Recipe, str, float]:
    """Train a recipe for fewer steps, or use its finished run; return it, its folder and its
    validation loss.
    """
    warmup = f"schedule.warmup_steps={steps // 10}"
    recipe = weft.load_recipe(name, [f"steps={steps}", warmup, "eval_every=null", "precision=fp32"])
    folder = trials.train(recipe, runs)
    losses = [line["valid"] for line in read_log(folder / "log.jsonl") if "valid" in line]
    return recipe, str(folder), float(losses[-1]["loss"])


def draw_vit(folder: str, recipe: R.Recipe, caption: str) -> tuple[Figure, list[float]]:
    """Draw filters, position similarity and attention distance of a ViT; return the mean distance
    of each block, in pixels.
    """
    model = weft.load(f"{folder}/model").eval()
    assert isinstance(model.spec.source, S.Patches)
    images = validation_images(recipe, 64)
    with observe.record(model) as recording, torch.no_grad():
        model(images)
    side = model.spec.source.image_size // model.spec.source.patch_size
    distances_YH = torch.stack(
        [
            torch.stack(
                [
                    observe.attention_distance(w, (side, side), 1, model.spec.source.patch_size)
                    for w in maps_BHLM
                ]
            ).mean(0)
            for maps_BHLM in recording.maps.values()
        ]
    )
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.5), layout="constrained")
    filters_NCRS = observe.patch_filters(model, 16)
    assert filters_NCRS is not None
    edge = filters_NCRS.shape[-1] + 1
    canvas = torch.full((4 * edge - 1, 4 * edge - 1), float("nan"))
    for i, filter_CRS in enumerate(filters_NCRS):
        row, column = divmod(i, 4)
        canvas[row * edge : row * edge + edge - 1, column * edge : column * edge + edge - 1] = (
            filter_CRS.mean(0)
        )
    axes[0].imshow(canvas, cmap="gray")
    axes[0].set(title="patch filters, principal components", xticks=[], yticks=[])
    similarity_LL = observe.position_similarity(model)
    assert similarity_LL is not None
    similarity = similarity_LL.view(side, side, side, side)
    grid = similarity.permute(0, 2, 1, 3).reshape(side * side, side * side)
    image = axes[1].imshow(grid, cmap="viridis")
    ticks = [side * i - 0.5 for i in range(side + 1)]
    axes[1].set(title="similarity of each position to all others", xticks=[], yticks=[])
    axes[1].hlines(ticks, -0.5, side * side - 0.5, color="white", linewidth=0.6)
    axes[1].vlines(ticks, -0.5, side * side - 0.5, color="white", linewidth=0.6)
    figure.colorbar(image, ax=axes[1], label="cosine similarity", shrink=0.8)
    for head in range(distances_YH.shape[1]):
        axes[2].plot(range(1, 1 + len(distances_YH)), distances_YH[:, head], "o", color=WEFT)
    axes[2].set(title="mean attention distance of each head", xlabel="block", ylabel="pixels")
    axes[2].set_ylim(0, 1.1 * float(distances_YH.max()))
    figure.supxlabel(caption, fontsize=9, color=INK)
    return figure, [round(float(d), 3) for d in distances_YH.mean(-1)]


def read_images(recipe: R.Recipe, count: int) -> list[Image.Image]:
    """Return the first validation images of a recipe whose file is idx, or npz of encoded
    images.
    """
    assert isinstance(recipe.data.valid, R.Source)
    (path,) = find(recipe.data.valid.paths[0])
    if path.endswith(".npz"):
        archive = np.load(path)
        encoded = archive["jpeg"].tobytes()
        offsets = archive["offsets"]
        return [
            Image.open(BytesIO(encoded[offsets[i] : offsets[i + 1]])).convert("RGB")
            for i in range(count)
        ]
    with gzip.open(path) as file:
        pixels = np.frombuffer(file.read(16 + count * 28 * 28)[16:], np.uint8)
    return [Image.fromarray(image) for image in pixels.reshape(count, 28, 28)]


def validation_images(recipe: R.Recipe, count: int) -> torch.Tensor:
    """Return grey validation images as the model of a recipe reads them, (B, 1, rows, columns)."""
    assert isinstance(recipe.task, R.Classification | R.MaskedAutoencoding)
    (normal,) = (step for step in recipe.task.transforms or () if isinstance(step, R.Normalize))
    pixels = torch.from_numpy(np.stack([np.array(i) for i in read_images(recipe, count)]))
    return (pixels[:, None] / 255 - normal.mean[0]) / normal.std[0]


def draw_reconstructions(folder: str, recipe: R.Recipe, file: Path) -> float:
    """Write three rows of pictures: image, visible patches, rebuilt; return the mean error of
    hidden pixels.
    """
    from weft.inference.open_model import open_model
    from weft.inference.reconstruct import reconstruct

    pictures = reconstruct(open_model(folder), read_images(recipe, SHOWN))
    size = 96
    gap = 4
    sheet = Image.new("RGB", (SHOWN * (size + gap) + gap, 3 * (size + gap) + gap), "white")
    for column, picture in enumerate(pictures):
        for row, image in enumerate((picture.original, picture.masked, picture.rebuilt)):
            large = image.convert("RGB").resize((size, size), Image.Resampling.NEAREST)
            sheet.paste(large, (gap + column * (size + gap), gap + row * (size + gap)))
    sheet.save(file, optimize=True)
    return round(float(np.mean([picture.error for picture in pictures])), 4)


def measure(steps: int, runs: Path, output: Path) -> Found:
    """Train both models, draw what they learned, and return what the pictures show in numbers."""
    vit_recipe, vit_folder, vit_loss = train("recipes/vit.py:fashion_mnist", steps, runs)
    caption = f"recipes/vit.py:fashion_mnist, {steps:,} steps; mean over 64 validation images"
    figure, distances = draw_vit(vit_folder, vit_recipe, caption)
    save(figure, output / "vit.svg")
    mae_recipe, mae_folder, mae_loss = train("recipes/mae.py:cifar10", steps, runs)
    error = draw_reconstructions(mae_folder, mae_recipe, output / "mae.png")
    return {
        "steps": steps,
        "vit": {"valid_loss": vit_loss, "mean_distance_per_block": distances},
        "mae": {"valid_loss": mae_loss, "error": error},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", action="store_true", help="train the two small models too")
    parser.add_argument("--steps", type=int, default=900, help="training steps (default: 900)")
    parser.add_argument("--runs", type=Path, default=Path("runs/course"), help="folder of the runs")
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        help="folder of the pictures (default: docs/results)",
    )
    parser.add_argument("--receipt", help="where the receipt lands")
    arguments = parser.parse_args()
    plt.rcParams.update(STYLE)
    torch.manual_seed(0)
    start = time.monotonic()
    for name, draw in DRAWINGS.items():
        save(draw(), arguments.output / f"{name}.svg")
    found: Found = {}
    if arguments.train:
        found = measure(arguments.steps, arguments.runs, arguments.output)
    if arguments.receipt and found:
        receipt.write(arguments.receipt, found, time.monotonic() - start)
    print(json.dumps({"pictures": list(DRAWINGS), **found}))


DRAWINGS = {
    "positions": draw_positions,
    "masks": draw_masks,
    "activations": draw_activations,
    "schedules": draw_schedules,
}

if __name__ == "__main__":
    command.run(main)
