"""Compiled models give the outputs of eager ones."""

import pytest
import torch

import weft
from tests.tasks.made import build_pair
from weft import recipe as R
from weft.nn.block import BlockLayer
from weft.nn.kernels import block_local

from ..tasks.made import batch, meta, rows, texts

MODELS = {
    "gpt2": dict(depth=2, width=32, heads=4, vocab_size=64, positions=16),
    "bert": dict(depth=2, width=32, heads=4, hidden=64, vocab_size=64, positions=16),
    "llama": dict(depth=2, width=32, heads=4, kv_heads=2, hidden=64, vocab_size=64),
    "t5": dict(depth=2, width=32, heads=4, head_dim=8, hidden=64, vocab_size=64),
    "bloom": dict(depth=2, width=32, heads=4, vocab_size=64),
    "vit": dict(depth=2, width=32, heads=4, hidden=64, image_size=16, patch_size=4, classes=3),
    "swin": dict(
        width=16, depths=(2, 2), heads=(2, 2), window=3, image_size=24, patch_size=2, classes=3
    ),
}


def test_a_compiled_window_in_blocks_is_the_eager_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_local, "sliding_window_block", lambda *_: 4)
    torch.compiler.reset()
    model = weft.build(
        weft.families.family("mistral")(
            depth=2, width=32, heads=4, kv_heads=2, hidden=64, vocab_size=64, window=6
        )
    ).eval()
    ids = torch.randint(0, 64, (2, 30))
    results = []
    for run in (model, torch.compile(model, fullgraph=True)):
        y = run(ids)
        results.append([y, *torch.autograd.grad(y.square().mean(), list(model.parameters()))])
    for a, b in zip(*results, strict=True):
        assert (a - b).detach().abs().max() <= 1e-5 * b.detach().abs().max().clamp(min=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_forward_and_backward_is_the_eager_one(name: str) -> None:
    torch.compiler.reset()  # sizes that another model had would be taken for ones that change
    model = weft.build(weft.families.family(name)(**MODELS[name])).eval()
    ids = torch.randint(0, 64, (2, 12))
    sides = {"vit": 16, "swin": 24}
    inputs = [torch.randn(2, 3, sides[name], sides[name])] if name in sides else [ids]
    inputs += [ids[:, :7]] if name == "t5" else []
    results = []
    for run in (model, torch.compile(model, fullgraph=True)):
        model.zero_grad()
        y = run(*inputs)
        y.square().mean().backward()
        results.append(
            [y.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        )
    for a, b in zip(*results, strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max().clamp(min=1)


@pytest.mark.slow
def test_the_routers_losses_of_compiled_blocks_are_the_eager_ones() -> None:
    torch.compiler.reset()
    spec = weft.mixtral(
        depth=2,
        width=32,
        heads=4,
        kv_heads=2,
        hidden=16,
        vocab_size=60,
        experts=4,
        top_k=2,
        router_z_weight=0.1,
    )
    corruption, objective = build_pair(R.CausalLM(), spec, meta(R.Documents()))
    held = batch(corruption, rows(corruption, texts(4, 33, 32)))
    results = []
    for compiled in (False, True):
        for block in objective.modules():
            if compiled and isinstance(block, BlockLayer):
                block.compile(backend="aot_eager")  # traced; without the minutes of a C++ compiler
        objective.zero_grad()
        sums = objective(held)
        (sums["balance"] + sums["router_z"]).backward()
        results.append(
            [
                *(s.detach() for s in sums.values()),
                *(p.grad.clone() for n, p in objective.named_parameters() if "router" in n),
            ]
        )
    for a, b in zip(*results, strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max().clamp(min=1)
