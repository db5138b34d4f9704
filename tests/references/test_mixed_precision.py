"""Models with norms on queries and keys train in mixed precision as in single."""

import pytest
import torch

import weft


@pytest.mark.parametrize("name", ["gemma2", "qwen3", "olmo2"])
def test_training_in_mixed_precision_is_near_training_in_single(name: str) -> None:
    """Under autocast a norm of queries widens its numbers; values and queries must meet in one
    precision.
    """
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
