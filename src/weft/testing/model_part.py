"""Conformance of the parts of a whole model: heads, stems and initialisations."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .. import spec as S
from ..interop.huggingface.verify import example, run_ours
from ..nn.initialisation import initialise_weights
from ..nn.layers.measure import image_flops
from ..nn.layers.roles import Role, parameter_facts
from ..nn.model import Model, build
from .layer import check_registered, check_roles
from .layer_properties import assert_same
from .recipe_part import tiny_decoder, tiny_encoder
from .value import calling, check_value


def check_head(head: S.Head, spec: S.Spec | None = None) -> None:
    """Check a head in a small model: counts, roles, outputs, gradients, device and dtype, and that
    a row gives the same result alone and in a batch with longer rows.

    Args:
        head: the value.
        spec: the model for the head (default: the first compatible small model).

    Raises:
        AssertionError: with the violated condition in one line.
    """
    check_value(head)
    name = type(head).__name__
    spec = with_head(head, spec)
    text = head.describe()
    assert len(text.splitlines()) == 1, f"{name}.describe gives {text!r}; one line is needed"
    with calling(f"building {name}"):
        meta = build(spec, device="meta")
    check_registered(name, meta.head)
    check_roles(name, meta.head)
    check_counts(name, spec, meta)
    batch = example(spec)
    with calling(f"{name} on the meta device"):
        run_ours(meta, {key: t.to("meta") for key, t in batch.items()})
    with calling(name):
        check_outputs(name, random_model(spec), batch)
        check_rows_alone(name, spec, batch)


def check_outputs(name: str, model: Model, batch: dict[str, Tensor]) -> None:
    """Check that the outputs of a model are finite and the same each time, and that a gradient
    reaches every parameter of the head.
    """
    outputs = list(tensors_of(run_ours(model, batch)))
    torch.stack([t.square().sum() for t in outputs if t.requires_grad]).sum().backward()
    for key, p in model.head.named_parameters():
        assert p.grad is not None or not p.requires_grad, f"{name}: no gradient reaches {key}"
        assert p.grad is None or bool(p.grad.any()), f"{name}: the gradient of {key} is 0"
    for one, other in zip(outputs, tensors_of(run_ours(model, batch)), strict=True):
        assert bool(one.isfinite().all()), f"{name} is not finite"
        assert torch.equal(one, other), f"{name} gives another result the second time in eval mode"
    low = {key: t.bfloat16() if t.is_floating_point() else t for key, t in batch.items()}
    for one in tensors_of(run_ours(model.to(torch.bfloat16), low)):
        assert bool(one.isfinite().all()), f"{name} is not finite in bfloat16"


@torch.no_grad()
def check_rows_alone(name: str, spec: S.Spec, batch: dict[str, Tensor]) -> None:
    """Check that the second row, of which the last tokens are padding, is the same alone and
    without padding.
    """
    model = build(spec).eval()
    draw = torch.Generator().manual_seed(4)
    for p in model.parameters():
        p.normal_(0, 0.3, generator=draw)
    row = {key: tensor[1:] for key, tensor in batch.items()}
    if "ids" in row:
        length = int(row["attention_mask"].sum())
        row |= {key: row[key][:, :length] for key in row.keys() - {"targets"}}
    together, alone = (list(tensors_of(run_ours(model, rows))) for rows in (batch, row))
    for whole, one in zip(together, alone, strict=True):
        # ignore outputs at padding
        same = whole[1:][tuple(slice(side) for side in one.shape)]
        assert_same(
            same,
            one,
            f"{name} gives a row a different result in a batch with longer rows; mask the padding",
        )


def check_counts(name: str, spec: S.Spec, meta: Model) -> None:
    """Check the declared parameters of a head; blocks of its own stack are counted with the
    model's.
    """
    counted = spec.parameter_count()
    built = sum(p.numel() for p in meta.parameters())
    assert counted == built, f"{name}.shapes: {counted} parameters are counted, there are {built}"
    shapes = {key: tuple(p.shape) for key, p in meta.head.named_parameters()}
    for key, shape in spec.head.shapes(spec):
        assert shapes.get(key) == shape, f"{name}.shapes: {key} {shape}, it is {shapes.get(key)}"
    assert spec.head.flops(spec, 7) >= 0, f"{name}.flops is less than 0"


def tensors_of(output: Any) -> Iterator[Tensor]:
    """Yield every tensor of an output; a head may return several."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict | tuple):
        for part in output.values() if isinstance(output, dict) else output:
            yield from tensors_of(part)


def random_model(spec: S.Spec) -> Model:
    """Return a model with random tensors: positive, as required by variances, and with few bits, so
    that adding 1 is exact.
    """
    model = build(spec).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.copy_(torch.randint(100, 300, tensor.shape, generator=draw) / 1024)
    return model


def with_head(head: S.Head, spec: S.Spec | None) -> S.Spec:
    """Return the first compatible small model for a head: text, patches or object queries."""
    problems = []
    for small in (spec,) if spec else (tiny_encoder(), tiny_decoder(), *tiny_image_models()):
        try:
            return S.replace(small, head=head)
        except ValueError as error:
            problems.append(str(error))
    raise AssertionError(
        f"{type(head).__name__} is not compatible with any small model ({problems[0]}); give "
        f"one: check_head(head, spec)"
    )


def tiny_image_models() -> Iterator[S.Spec]:
    encoder = tiny_encoder().encoder
    patches = S.Patches(image_size=12, patch_size=4, positions=S.LearnedPositions(count=10))
    yield S.Spec(width=8, source=patches, head=S.NoHead(), encoder=encoder)
    block = S.post_norm(S.LayerNorm(), S.Attention(heads=2))
    feed = S.post_norm(S.LayerNorm(), S.MLP(hidden=16))
    decoder = S.Stack(blocks=(S.Block(attention=block, cross_attention=block, feedforward=feed),))
    resnet = S.ResNet(depths=(1,), widths=(8,), stem_width=4)
    queries = S.ObjectQueries(count=3)
    yield S.Spec(
        width=8, source=resnet, target=queries, head=S.NoHead(), encoder=encoder, decoder=decoder
    )


def check_stem(stem: S.PatchStem) -> None:
    """Check a stem in a small model of images: stride, counts, FLOPs, roles, gradients, device and
    dtype.
    """
    check_value(stem)
    name = type(stem).__name__
    stride = stem.stride
    source = S.Patches(image_size=3 * stride, patch_size=stride, extra_tokens=(), stem=stem)
    spec = S.Spec(width=16, source=source, head=S.NoHead(), encoder=tiny_encoder().encoder)
    meta = build(spec, device="meta")
    check_roles(name, meta.source)
    counted = spec.parameter_count()
    built = sum(p.numel() for p in meta.parameters())
    assert counted == built, f"{name}.shapes: {counted} parameters are counted, there are {built}"
    measured = image_flops(stem, source.channels, spec.width, source.image_size)
    flops = stem.flops(source.channels, spec.width, source.image_size)
    assert flops == measured, f"{name}.flops: {flops} are counted, torch measures {measured}"
    model = random_model(spec)
    for side in (3 * stride, 3 * stride + 1):  # the second is padded to 4 cells
        cells = -(-side // stride)
        x_BLD = model.embed(torch.randn(2, source.channels, side, side)).x_BLD
        assert x_BLD.shape == (2, cells**2, 16), f"{name}: {tuple(x_BLD.shape)} of {side} pixels"
        assert bool(x_BLD.isfinite().all()), f"{name} is not finite"
    x_BLD.square().sum().backward()
    for key, p in model.source.named_parameters():
        assert p.grad is not None, f"{name}: no gradient reaches {key}"
        assert bool(p.grad.any()), f"{name}: the gradient of {key} is 0"
    meta.embed(torch.empty(1, source.channels, 3 * stride, 3 * stride, device="meta"))


def check_init(init: S.Init) -> None:
    """Check that an initialisation gives finite, random weights to matrices and tables, keyed by
    the seed and the path.
    """
    check_value(init)
    name = type(init).__name__
    spec = S.replace(tiny_encoder(), width=16, init=init)
    first, same, other = (build(spec, seed=seed).state_dict() for seed in (0, 0, 1))
    facts = parameter_facts(build(spec))
    for key, tensor in first.items():
        assert bool(tensor.isfinite().all()), f"{name}: {key} is not finite"
        assert torch.equal(tensor, same[key]), f"{name}: {key} differs for the same seed"
        if facts[key].role in (Role.MATRIX, Role.TABLE):
            one = float(tensor.flatten()[0])
            assert bool((tensor != one).any()), f"{name}: all of {key} is {one:g}"
            assert not torch.equal(tensor, other[key]), (
                f"{name}: {key} does not follow from the seed"
            )
    alone = build(spec, seed=1)
    key = next(key for key in reversed(first) if facts[key].role is Role.MATRIX)
    initialise_weights(alone, spec, seed=0, only={key})
    assert torch.equal(alone.state_dict()[key], first[key]), (
        f"{name}: {key} depends on the order of initialisation; use the given generator"
    )
