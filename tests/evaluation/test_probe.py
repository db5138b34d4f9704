"""Least-squares probes on frozen features compared with slow references, and the command."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import weft
from weft.cli import main
from weft.evaluation.probe import draw_shots, fit_least_squares


def features(seed: int, count: int = 40, width: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    label_N = torch.randint(3, (count,), generator=rng)
    x_ND = torch.randn(count, width, generator=rng, dtype=torch.float64)
    return x_ND + 1.5 * torch.nn.functional.one_hot(label_N, width), label_N


@pytest.mark.parametrize("strength", [1e-3, 1.0, 100.0])
def test_the_probe_is_the_minimum_of_the_regularised_squared_error(strength: float) -> None:
    x_ND, label_N = features(0)
    fitted = fit_least_squares(x_ND, label_N, 3, [strength])
    weight = fitted.weight_DC.clone().requires_grad_()
    bias = fitted.bias_C.clone().requires_grad_()
    y_NC = torch.full((len(x_ND), 3), -1.0, dtype=torch.float64)
    y_NC[torch.arange(len(x_ND)), label_N] = 1.0
    centred = x_ND - x_ND.mean(0)
    l2 = strength * torch.linalg.svdvals(centred).square().mean()
    loss = (centred @ weight + bias - y_NC).square().sum() + l2 * weight.square().sum()
    loss.backward()
    assert weight.grad is not None
    assert bias.grad is not None
    assert float(weight.grad.abs().max()) < 1e-9
    assert float(bias.grad.abs().max()) < 1e-9


def test_the_strength_is_the_one_that_predicts_left_out_samples_best() -> None:
    x_ND, label_N = features(1, count=12, width=9)
    candidates = [1e-4, 1e-2, 1.0, 100.0]
    scale = torch.linalg.svdvals(x_ND - x_ND.mean(0)).square().mean()

    def left_out_error(strength: float) -> float:
        total = 0.0
        for i in range(len(x_ND)):
            rest = torch.arange(len(x_ND)) != i
            x = x_ND[rest]
            y = 2.0 * torch.nn.functional.one_hot(label_N[rest], 3).double() - 1
            gram = (x - x.mean(0)).T @ (x - x.mean(0))
            eye = torch.eye(x.shape[1], dtype=torch.float64)
            weight = torch.linalg.solve(
                gram + strength * scale * eye, (x - x.mean(0)).T @ (y - y.mean(0))
            )
            target = 2.0 * torch.nn.functional.one_hot(label_N[i], 3).double() - 1
            error = (x_ND[i] - x.mean(0)) @ weight + y.mean(0) - target
            total += float(error.square().sum())
        return total

    best = min(candidates, key=left_out_error)
    assert fit_least_squares(x_ND, label_N, 3, candidates).l2 == best


def test_shots_are_so_many_of_each_class_and_differ_by_seed() -> None:
    labels = np.repeat([0, 1, 2], 20)
    one, other = (draw_shots(labels, 5, seed) for seed in (0, 1))
    assert np.bincount(labels[one]).tolist() == [5, 5, 5]
    assert len(set(one.tolist())) == 15
    assert one.tolist() != other.tolist()
    assert one.tolist() == draw_shots(labels, 5, 0).tolist()
    with pytest.raises(ValueError, match=r"class 0 has 20 images, .*21 shots; .*--shots 20"):
        draw_shots(labels, 21, 0)


def test_the_command_tells_apart_what_the_features_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for split in ("train", "valid"):
        for label, low in (("dark", 0), ("bright", 160)):
            (tmp_path / split / label).mkdir(parents=True)
            for i in range(4):
                pixels = rng.integers(low, low + 90, (16, 16, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / label / f"{i}.png")
    spec = weft.vit(depth=1, width=16, heads=2, hidden=16, image_size=16, patch_size=4)
    weft.save(weft.build(spec), tmp_path / "model")
    arguments = ["probe", str(tmp_path / "model"), "--data", str(tmp_path / "train")]
    arguments += ["--valid", str(tmp_path / "valid"), "--shots", "2", "--seeds", "2", "--json"]
    assert main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["shots"], row["seeds"]) for row in rows] == [(2, 2), (None, 1)]
    assert rows[-1]["accuracy"] == 1.0
    assert main(arguments[:-1]) == 0
    assert "2 per class  accuracy" in capsys.readouterr().out
