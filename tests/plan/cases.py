"""Small models of each kind, their inputs, and matching workloads."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import weft
from weft import spec as S
from weft.plan.recipe_workload import Workload

TEXT: dict[str, Any] = {"width": 64, "heads": 4, "vocab_size": 100}
DRY = {"dropout": 0.0, "attention_dropout": 0.0}


@dataclass(frozen=True)
class Case:
    family: str
    arguments: dict[str, Any]
    length: int = 32
    target_length: int | None = None
    rows: int = 3

    def spec(self, depth: int, **more: Any) -> S.Spec:
        spec: S.Spec = getattr(weft, self.family)(depth=depth, **self.arguments | more)
        return spec

    def inputs(self, rows: int, device: str = "cpu") -> tuple[Tensor, ...]:
        if self.family == "vit":
            return (torch.zeros(rows, 3, self.length, self.length, device=device),)
        lengths = [self.length, *([self.target_length] if self.target_length else [])]
        return tuple(torch.zeros(rows, n, dtype=torch.long, device=device) for n in lengths)

    def workload(self, depth: int, precision: str = "fp32", **more: Any) -> Workload:
        unit = "images" if self.family == "vit" else "tokens"
        return Workload(
            self.family,
            self.spec(depth, **more),
            self.rows,
            self.length,
            1,
            self.target_length,
            precision=precision,
            unit=unit,
        )


CASES = {
    "gpt2": Case("gpt2", TEXT | DRY),
    "bert": Case("bert", TEXT | DRY | {"hidden": 128}),
    "roberta": Case("roberta", TEXT | DRY | {"hidden": 96}),
    "t5": Case("t5", TEXT | {"hidden": 128, "head_dim": 16, "dropout": 0.0}, 32, 16),
    "bart": Case("bart", TEXT | DRY | {"hidden": 96}, 32, 16),
    "palm": Case("palm", TEXT | {"head_dim": 16}),
    "llama": Case("llama", TEXT | {"hidden": 96, "kv_heads": 2}),
    "qwen3": Case("qwen3", TEXT | {"hidden": 96, "kv_heads": 2, "head_dim": 16}),
    "vit": Case(
        "vit",
        {"width": 64, "heads": 4, "hidden": 128, "image_size": 32, "patch_size": 8, "classes": 10},
    ),
}
