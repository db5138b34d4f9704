"""Self-attention beside convolutions (SAGAN, arXiv:1805.08318): a small classifier of Fashion-MNIST
with and without the block.

    python examples/self_attention_cnn.py fashion-mnist --steps 1500 --seeds 3

The folder holds the four published files. The block is on the map of 7 × 7 cells; in its place
stands, as in the paper's table 1, a residual block of about as many parameters, or nothing. The
last line is JSON.
"""

import argparse
import gzip
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft


def read_idx(path: Path) -> Tensor:
    """An array of the idx format: a header of four bytes, each size in four, then bytes."""
    data = gzip.decompress(path.read_bytes())
    sizes = np.frombuffer(data, ">i4", data[3], 4)
    return torch.from_numpy(
        np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(sizes).copy()
    )


def load(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Images (N, 1, 28, 28) between 0 and 1, and their classes."""
    images, labels = (
        read_idx(folder / f"{split}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")
    )
    return images[:, None] / 255, labels.long()


class ResidualBlock(nn.Module):
    """Two convolutions through two channels: about as many parameters as the attention of 64
    channels has.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, width, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        residual: Tensor = self.layers(x)
        return x + residual


BLOCKS = {
    "neither": nn.Identity,
    "residual block": ResidualBlock,
    "self-attention": weft.SelfAttention2d,
}


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


class Classifier(nn.Module):
    def __init__(self, block: str, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            convolution(1, width, stride=2),
            convolution(width, 2 * width, stride=2),
            BLOCKS[block](2 * width),
            convolution(2 * width, 2 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, 10),
        )

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.layers(image)
        return logits


def train(
    data: tuple[Tensor, Tensor],
    block: str,
    steps: int,
    seed: int,
    batch: int = 128,
    progress: str = "",
) -> Classifier:
    torch.manual_seed(seed)
    model = Classifier(block)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    start = time.perf_counter()
    for step in range(steps):
        rows = torch.randint(len(data[0]), (batch,))
        loss = F.cross_entropy(model(data[0][rows]), data[1][rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if progress and (step + 1) % 100 == 0:
            left = (time.perf_counter() - start) / (step + 1) * (steps - step - 1)
            print(f"{progress}: step {step + 1}/{steps}, about {left:.0f} s left", flush=True)
    return model.eval()


@torch.no_grad()
def accuracy(model: Classifier, data: tuple[Tensor, Tensor]) -> float:
    right = [
        model(images).argmax(-1) == labels
        for images, labels in zip(data[0].split(1000), data[1].split(1000), strict=True)
    ]
    return float(torch.cat(right).float().mean())


def main(
    train_data: tuple[Tensor, Tensor], test_data: tuple[Tensor, Tensor], steps: int, seeds: int
) -> dict[str, list[float]]:
    """The accuracy of each seed, with each block."""
    results: dict[str, list[float]] = {}
    start = time.perf_counter()
    for name in BLOCKS:
        size = sum(p.numel() for p in Classifier(name).parameters())
        results[name] = []
        for seed in range(seeds):
            model = train(train_data, name, steps, seed, progress=f"{name} seed {seed}")
            results[name].append(accuracy(model, test_data))
            seconds = time.perf_counter() - start
            print(f"{name} seed {seed}: {results[name][-1]:.4f} after {seconds:.0f} s", flush=True)
        mean = statistics.mean(results[name])
        print(f"{name:16}  {size:,} parameters  accuracy {mean:.4f} over {seeds} seeds", flush=True)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    splits = [load(args.folder, split) for split in ("train", "t10k")]
    print(json.dumps(main(splits[0], splits[1], args.steps, args.seeds)))
