"""How every number starts. One rule a role, told by the parameter's name; each draws from a generator of its own,
so a model starts the same whatever the order in which it was built and however it is sharded."""
import hashlib

import torch
from torch import Tensor, nn

from .. import spec as S
from ..layers.position import sine_grid

ROLES = ("query", "key", "value", "out", "up", "gate", "down", "router", "dense", "project", "reduce", "narrow")
NORMS = ("norm", "before", "out", "after", "query_norm", "key_norm")
GAINED = ("value", "out", "up", "gate", "down")                # DeepNorm, arXiv:2203.00555, figure 2


def initialise(model: nn.Module, s: S.Model, seed: int = 0) -> None:
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            generator = torch.Generator(tensor.device).manual_seed(number(seed, name))
            begin(name, tensor, s, generator)


def number(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "big") >> 1


def begin(name: str, t: Tensor, s: S.Model, generator: torch.Generator) -> None:
    *path, role, kind = f".{name}".split(".")
    if (role in NORMS and t.dim() == 1 and kind == "weight") or kind == "variance":
        t.fill_(1)
    elif role == "layer_scale":
        t.fill_(S.at(s, name.removesuffix(".weight") + ".initial"))
    elif kind in ("bias", "mean") or role == "features":       # layers start with equal weights
        t.zero_()
    elif t.dim() == 4:
        nn.init.kaiming_normal_(t, mode="fan_out", generator=generator) if "convolution" in name else \
            fill(t, s.start, t[0].numel(), t.shape[0], False, generator)
    elif role == "positions" and isinstance(s.source, S.Patches) and (
            isinstance(s.source.positions, S.Sine2D) or name.startswith("head")):
        side, n = s.source.image // s.source.patch, len(s.source.tokens)
        t.zero_()[n:] = sine_grid(side, side, t.shape[1])
    elif role in ROLES or role == "classes" or (role.isdigit() and path[-1] in ("box", "out")):
        joins = role in ("out", "down") and "inner" in path
        matrix(name, t, s, joins, generator)
    else:
        table(name, t, s, generator)


def matrix(name: str, t: Tensor, s: S.Model, joins: bool, generator: torch.Generator) -> None:
    fan_out, fan_in = t.shape[-2:]
    role = name.rsplit(".", 2)[-2]
    if isinstance(s.start, S.T5Start):
        std = s.start.factor * fan_in ** -0.5
        if role == "query":                                    # the score is not divided by √d_k, so the query is
            std *= attention_of(name, s, fan_out) ** -0.5
        if name == "head.out.weight" and isinstance(s.head, S.Vocabulary):
            std = s.start.factor
        t.normal_(0, std, generator=generator)
    else:
        fill(t, s.start, fan_in, fan_out, joins, generator, depth(name, s))
    if ".inner." in name and role in GAINED:
        gain = S.at(s, name[:name.index(".inner")] + ".gain")
        if gain != 1:
            t.mul_(gain)


def attention_of(name: str, s: S.Model, fan_out: int) -> int:
    a = S.at(s, name[:name.index(".inner")] + ".inner")
    return fan_out // int(a.heads)


def depth(name: str, s: S.Model) -> int:
    """Residual branches on the way through this stack."""
    stack = {"encoder": s.encoder, "decoder": s.decoder, "head": getattr(s.head, "stack", None)}.get(name.split(".")[0])
    blocks = stack.blocks if isinstance(stack, S.Stack) else [b for stage in stack.stages for b in stage] if stack else []
    return sum(3 if getattr(b, "cross", None) is not None else 2 for b in blocks)


def fill(t: Tensor, start: S.Start, fan_in: int, fan_out: int, joins: bool, generator: torch.Generator, branches: int = 1) -> None:
    if isinstance(start, S.Normal):
        std = start.std * (max(branches, 1) ** -0.5 if joins and start.by_depth else 1)
        if start.cut is None:
            t.normal_(0, std, generator=generator)
        else:
            nn.init.trunc_normal_(t, 0, std, -start.cut * std, start.cut * std, generator=generator)
    else:
        bound = (6 / (fan_in + fan_out)) ** 0.5
        t.uniform_(-bound, bound, generator=generator)


def table(name: str, t: Tensor, s: S.Model, generator: torch.Generator) -> None:
    """Embeddings, positions, extra tokens, distance buckets."""
    if isinstance(s.start, S.Normal):
        fill(t, s.start, 0, 0, False, generator)
    elif isinstance(s.start, S.Xavier):
        t.normal_(0, t.shape[-1] ** -0.5, generator=generator)
    else:
        t.normal_(0, s.start.factor * (s.width ** -0.5 if "score" in name else 1.0), generator=generator)
