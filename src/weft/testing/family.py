"""Conformance of a family: `check_family` raises an AssertionError that names the problem."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ..families import Family, LabelNames, family_names
from ..families import family as find_family
from ..interop.huggingface.describe import read_folder
from ..interop.huggingface.verify import example, run_ours
from ..interop.loading import load
from ..interop.saving import save
from ..nn.model import Model, build
from ..spec import Spec, replace
from ..support.values import from_json, to_json
from .model_part import random_model
from .value import check_value


def check_family(family: Family, **small: Any) -> None:
    """Check that a family's sizes can be built, and that its tables hold in both directions.

    Every size goes to JSON and back and has as many parameters on the meta device as it counts. A
    small model with the head of each published class goes to config.json and back; its tensors,
    each claimed by a row, are saved and loaded without a changed bit, in the published layout and
    in Weft's. Whether a published model computes the same is what `weft verify FOLDER` says.

    Args:
        family: registered with `weft.register`.
        small: arguments of the family for a model of a few thousand parameters, such as depth=2,
            width=16.

    Raises:
        AssertionError: which says what the family does not keep.
        ValueError: if a spec has no config.json, or a tensor no row.
    """
    name = family.name
    registered = find_family(name) if name in family_names() else None
    assert registered is family, (
        f"{name} is not registered: call weft.register(weft.Family({name!r}, …))"
    )
    assert family.sizes, f"{name} has no size; the first is the default"
    for size in family.sizes:
        check_size(f"{name}-{size}", family(size))
    spec = family(**small)
    check_value(spec)
    check_layout(f"{name} in Weft's layout", random_model(spec), "weft")
    if family.model_type:
        assert family.heads, f"{name}.heads is empty; name the published class of each head"
    for kind, head in family.heads.items():
        check_class(family, kind, replace(spec, head=head(spec, LabelNames(outputs=3))))


def check_size(name: str, spec: Spec) -> None:
    """Check JSON and the number of parameters, without memory for a weight."""
    assert from_json(to_json(spec)) == spec, f"{name} is another spec after JSON"
    built = sum(p.numel() for p in build(spec, device="meta").parameters())
    counted = spec.parameter_count()
    assert built == counted, f"{name} has {built:,} parameters, {counted:,} are counted"


def check_class(family: Family, kind: str, spec: Spec) -> None:
    """Check config.json and weight table for the head of one published class."""
    name = f"{family.name}, {kind}"
    config = json.loads(json.dumps(family.to_config(spec)))
    again = family.from_config(config)
    assert again == spec, f"{name}: config.json reads back as another spec: {again}"
    model = random_model(spec)
    model.family = family.name
    check_layout(name, model, "hf")


@torch.no_grad()
def check_layout(name: str, model: Model, to: str) -> None:
    """Check that a model is saved and loaded as the same spec, the same tensors and the same
    outputs.
    """
    with TemporaryDirectory() as temporary:
        folder = save(model, Path(temporary) / "model", to=to)
        read = read_folder(folder)[0]
        kind = find_family(model.family).model_type if model.family else None
        assert (read.model_type if read else None) == kind, f"{name}: saved as {read}"
        again = load(folder)
    assert again.spec == model.spec, f"{name}: loaded with another spec"
    state = again.state_dict()
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[key]), f"{name}: {key} is another tensor after save, load"
    batch = example(model.spec)
    one = run_ours(model, batch)
    other = run_ours(again, batch)
    for output in one:
        assert torch.equal(one[output], other[output]), f"{name}: {output} differs after save, load"
