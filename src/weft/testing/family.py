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
    """Check that a family's sizes can be built, and that its tables convert in both directions.

    Every size is written to JSON and read back, and its parameter count is compared with the model
    on the meta device. A small model with the head of each published class is written to
    config.json and read back; its tensors are saved and loaded bit for bit, in the published layout
    and in Weft's. To compare the outputs of a published model, use `weft verify FOLDER`.

    Args:
        family: registered with `weft.register`.
        small: arguments of the family for a model of a few thousand parameters, such as depth=2,
            width=16.

    Raises:
        AssertionError: with the violated condition.
        ValueError: if a spec has no config.json, or a tensor no row.
    """
    name = family.name
    registered = find_family(name) if name in family_names() else None
    assert registered is family, (
        f"{name} is not registered: call weft.register(weft.Family({name!r}, …))"
    )
    assert family.sizes, f"{name} has no sizes; give at least one (the first is the default)"
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
    assert from_json(to_json(spec)) == spec, f"{name} changes when written to JSON and read back"
    built = sum(p.numel() for p in build(spec, device="meta").parameters())
    counted = spec.parameter_count()
    assert built == counted, f"{name} has {built:,} parameters, but its spec counts {counted:,}"


def check_class(family: Family, kind: str, spec: Spec) -> None:
    """Check config.json and weight table for the head of one published class."""
    name = f"{family.name}, {kind}"
    config = json.loads(json.dumps(family.to_config(spec)))
    again = family.from_config(config)
    assert again == spec, f"{name}: config.json reads back as a different spec: {again}"
    model = random_model(spec)
    model.family = family.name
    check_layout(name, model, "hf")


@torch.no_grad()
def check_layout(name: str, model: Model, to: str) -> None:
    """Check that a saved and loaded model has the same spec, tensors and outputs."""
    with TemporaryDirectory() as temporary:
        folder = save(model, Path(temporary) / "model", to=to)
        read = read_folder(folder)[0]
        kind = find_family(model.family).model_type if model.family else None
        assert (read.model_type if read else None) == kind, f"{name}: saved as {read}"
        again = load(folder)
    assert again.spec == model.spec, f"{name}: the loaded spec differs"
    state = again.state_dict()
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[key]), f"{name}: {key} changes after save and load"
    batch = example(model.spec)
    one = run_ours(model, batch)
    other = run_ours(again, batch)
    for output in one:
        assert torch.equal(one[output], other[output]), (
            f"{name}: {output} changes after save and load"
        )
