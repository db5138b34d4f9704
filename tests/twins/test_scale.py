"""Norms on queries and keys, and layer scale, against the same written out; a softcap on logits."""

from typing import Any

import pytest
import torch

import weft
from weft import spec as S
from weft.kernels.masks import Positions
from weft.layers.attention import AttentionContext, AttentionLayer

LOOK = "encoder.blocks.{}.attention.inner"
SMALL: dict[str, Any] = {
    "depth": 2,
    "width": 16,
    "heads": 2,
    "hidden": 24,
    "vocab_size": 40,
    "positions": 12,
}


def filled(module: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.5)
    return module


def whole(m: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    at = torch.arange(x.shape[1])[None]
    y: torch.Tensor = m(x, None, AttentionContext(Positions(at, at, first_query_slot=0)))
    return y


@pytest.mark.parametrize("over", ["head", "projection"])
@pytest.mark.parametrize("norm", [S.RMSNorm(eps=1e-2), S.LayerNorm(eps=1e-2)])
def test_queries_and_keys_are_normalised_by_head_or_by_projection(over: Any, norm: S.Norm) -> None:
    heads, groups, width = 4, 2, 6
    s = S.Attention(
        heads=heads, kv_heads=groups, head_dim=width, qk_norm=S.QKNorm(norm=norm, per=over)
    )
    m = filled(AttentionLayer(s, 16).double())
    x = torch.randn(2, 5, 16, dtype=torch.float64)

    def normalised(t: torch.Tensor, own: torch.nn.Module) -> torch.Tensor:
        if isinstance(norm, S.LayerNorm):
            t = t - t.mean(-1, keepdim=True)
        unit = t / (t.square().mean(-1, keepdim=True) + 1e-2).sqrt()
        return unit * own.weight + (own.bias if isinstance(norm, S.LayerNorm) else 0)

    q, k, v = m.query(x), m.key(x), m.value(x)
    parts = []
    for h in range(heads):
        g = h * groups // heads
        one = [t[..., i * width : (i + 1) * width] for t, i in ((q, h), (k, g), (v, g))]
        if over == "head":
            one[:2] = normalised(one[0], m.query_norm), normalised(one[1], m.key_norm)
        else:
            one[0] = normalised(q, m.query_norm)[..., h * width : (h + 1) * width]
            one[1] = normalised(k, m.key_norm)[..., g * width : (g + 1) * width]
        parts.append((one[0] @ one[1].mT * width**-0.5).softmax(-1) @ one[2])
    assert (whole(m, x) - m.out(torch.cat(parts, -1))).abs().max() < 1e-12


def scaled(initial: float) -> weft.Model:
    s = weft.bert(**SMALL, head=S.NoHead())
    for i in range(2):
        for branch in ("attention", "feedforward"):
            s = S.replace_path(
                s,
                f"encoder.blocks.{i}.{branch}",
                S.pre_norm(
                    S.LayerNorm(),
                    S.get_path(s, f"encoder.blocks.{i}.{branch}.inner"),
                    layer_scale=S.LayerScale(initial=initial),
                ),
            )
    return weft.build(s, dtype=torch.float64).eval()


def test_a_small_layer_scale_starts_as_the_identity_and_one_as_no_scale() -> None:
    ids = torch.randint(0, 40, (2, 7))
    small, one = scaled(1e-5), scaled(1.0)
    x = small.embed(ids)
    assert 0 < (small.encode(x).x_BLD - x.x_BLD).abs().max() < 1e-4
    plain = small.spec
    for i in range(2):
        for branch in ("attention", "feedforward"):
            plain = S.replace_path(plain, f"encoder.blocks.{i}.{branch}.layer_scale", None)
    assert torch.equal(one(ids)[0], weft.build(plain, dtype=torch.float64).eval()(ids)[0])


def test_a_layer_scale_multiplies_each_channel_of_a_branchs_output() -> None:
    model = filled(scaled(1.0))
    block = model.encoder.blocks[0]
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    branch = block.feedforward
    hidden = torch.nn.functional.gelu(branch.inner.up(branch.before(x)))
    assert (
        branch(x) - (x + branch.layer_scale.weight * branch.inner.down(hidden))
    ).abs().max() < 1e-12


def test_logits_never_leave_their_soft_cap_and_small_ones_hardly_change() -> None:
    free = weft.build(
        weft.gemma2(
            depth=1,
            width=16,
            heads=2,
            kv_heads=1,
            head_dim=8,
            hidden=24,
            vocab_size=40,
            logit_softcap=None,
            init=weft.NormalInit(std=5.0),
        )
    ).eval()
    capped = weft.build(S.replace_path(free.spec, "head.softcap", 30.0)).eval()
    ids = torch.randint(0, 40, (2, 7))
    plain, found = free(ids), capped(ids)
    assert plain.abs().max() > 30 > found.abs().max()
    torch.testing.assert_close(found, 30 * (plain / 30).tanh())


@pytest.mark.parametrize("name", ["gemma2", "qwen3", "olmo2"])
def test_training_in_mixed_precision_is_near_training_in_single(name: str) -> None:
    """Under autocast a norm of queries widens its numbers; values and queries must meet in one precision."""
    more = {"kv_heads": 1, "hidden": 32, "vocab_size": 40} | (
        {} if name == "olmo2" else {"head_dim": 8}
    )
    s = weft.family(name)(depth=2, width=32, heads=4, **more, init=weft.NormalInit(std=0.1))
    ids = torch.randint(0, 40, (2, 12))
    gradients = []
    for enabled in (False, True):
        model = weft.build(s).train()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = torch.nn.functional.cross_entropy(
                model(ids)[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten()
            )
        loss.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters()})
    for n, true in gradients[0].items():
        assert gradients[1][n] is not None, n
        assert float((gradients[1][n] - true).norm() / true.norm()) < 0.05, n
