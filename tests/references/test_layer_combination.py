"""DLCL: what a block reads of all earlier layers, beside the paper's equation written out."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import weft
from weft import spec as S
from weft.support.values import from_json, to_json


def combined(spec: S.Spec, norm: S.Norm | None = S.LayerNorm()) -> S.Spec:
    """Every stack of a model with a learned combination."""
    stacks = {
        name: replace(stack, layer_combination=S.DLCL(norm=norm))
        for name in ("encoder", "decoder")
        if isinstance(stack := getattr(spec, name), S.Stack)
    }
    return replace(spec, **stacks)


def decoder(depth: int = 3, **more: Any) -> S.Spec:
    return combined(
        weft.gpt2(
            depth=depth, width=16, heads=2, hidden=32, vocab_size=40, positions=24, dropout=0.0
        ),
        **more,
    )


def scatter(model: torch.nn.Module) -> None:
    """Weights of which none is as it starts."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=generator, dtype=p.dtype))


@pytest.mark.parametrize("norm", [S.LayerNorm(), None], ids=["pre-norm", "post-norm"])
def test_a_stack_is_equation_9_of_the_paper(norm: S.Norm | None) -> None:
    model = weft.build(decoder(norm=norm), dtype=torch.float64).eval()
    scatter(model)
    stack = model.decoder
    sequence = model.embed(torch.arange(12).view(1, 12))
    (view,) = stack.build_contexts(sequence, None)
    norms = stack.layer_combination.norms
    weights = stack.layer_combination.weights

    def g(outputs: list[torch.Tensor]) -> torch.Tensor:
        normed = torch.stack([norms[k](y) for k, y in enumerate(outputs)])
        return torch.einsum("k,kbld->bld", weights[len(outputs) - 1], normed)

    outputs = [sequence.x_BLD]
    for block in stack.blocks:
        outputs.append(block(g(outputs), view))
    expected = stack.norm(g(outputs))
    torch.testing.assert_close(model.decode(sequence).x_BLD, expected, rtol=1e-12, atol=1e-12)


def test_weights_start_as_a_mean_and_all_of_them_learn() -> None:
    model = weft.build(decoder())
    weights = list(model.decoder.layer_combination.weights)
    assert [w.tolist() for w in weights] == [pytest.approx([1 / n] * n) for n in (1, 2, 3, 4)]
    logits = model(torch.arange(12).view(1, 12))
    logits.log_softmax(-1)[..., 3].sum().backward()
    assert all(w.grad is not None and w.grad.abs().min() > 0 for w in weights)


@pytest.mark.parametrize("norm", [S.LayerNorm(), S.RMSNorm(), None])
def test_the_spec_counts_and_names_the_parameters(norm: S.Norm | None) -> None:
    spec = decoder(norm=norm)
    model = weft.build(spec)
    assert sum(p.numel() for p in model.parameters()) == spec.parameter_count()
    assert from_json(to_json(spec)) == spec


def test_decoding_step_by_step_gives_the_whole() -> None:
    model = weft.build(decoder(), dtype=torch.float64).eval()
    scatter(model)
    tokens = torch.arange(10).view(1, 10)
    with torch.no_grad():
        whole = model(tokens)
        cache = model.new_cache(1, 16)
        steps = [
            model.read(model.decode(model.embed(tokens[:, i : i + 1], cache=cache), cache=cache))
            for i in range(10)
        ]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-12, atol=1e-12)


def test_an_encoder_decoder_combines_both_sides_and_drops_nothing_of_the_memory() -> None:
    spec = combined(weft.transformer(depth=2, width=16, heads=2, hidden=32, vocab_size=40))
    model = weft.build(spec, dtype=torch.float64).eval()
    scatter(model)
    source = torch.arange(7).view(1, 7)
    target = torch.arange(5).view(1, 5)
    loss = model(source, target).logsumexp(-1).sum()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_logit_lens_refuses_what_it_would_read_wrongly() -> None:
    from weft.observe.lens import lens_stack

    with pytest.raises(ValueError, match="a combination of layers"):
        lens_stack(weft.build(decoder()))


def test_the_export_reports_that_no_published_layout_has_it(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="layer_combination"):
        weft.save(weft.build(decoder()), tmp_path / "out")
