"""A model ready for use, by any name: a run's folder, a model's folder, a name on the hub."""
import json
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from . import recipe as R
from . import spec as S
from .data.members import member
from .data.prepare import fingerprint
from .data.store import Folder
from .data.tokenizer import Tokenizer
from .interop.folder import load
from .interop.hub import fetch
from .layers.lowrank import merged
from .model.model import Model, build
from .train.adapt import adapt
from .train.checkpoint import newest
from .train.same import recipe_of


class Ready(NamedTuple):
    name: str
    model: Model                           # in eval mode
    tokenizer: Tokenizer | None
    recipe: R.Recipe | None                # of a run
    folder: Path

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the head's classes or tags."""
        return getattr(self.model.spec.head, "labels", None)

    @property
    def text(self) -> Tokenizer:
        """The tokenizer of a model that reads text."""
        if self.tokenizer is None:
            raise ValueError(f"{self.name} holds no tokenizer.json; put the one that it was trained with beside its weights")
        return self.tokenizer


def ready(name: str | Path, *, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu") -> Ready:
    """Of a run that is not finished, the newest checkpoint."""
    folder = fetch(name)
    if not (folder / "recipe.json").is_file():
        model = load(folder, dtype=dtype, device=device)
        return Ready(str(name), model, tokenizer_of(folder, model.spec), None, folder)
    recipe = recipe_of(folder, complain)
    if (folder / "model").is_dir():
        model = load(folder / "model", dtype=dtype, device=device)
        return Ready(str(name), model, tokenizer_of(folder / "model", model.spec), recipe, folder)
    found = newest(folder / "checkpoints", complain)
    if found is None:
        raise ValueError(f"{folder} has no checkpoint yet; weft train trains it")
    data = Folder(str(recipe.data.folder or Path("prepared") / fingerprint(recipe.data)))
    labels = json.loads(data.text("data.json"))["labels"]
    model = build(S.named(recipe.model, labels), dtype=dtype, device=device)
    adapt(model, recipe.trained)
    model.load_state_dict({key.removeprefix("model."): t for key, t in found.group("model").items() if key.startswith("model.")})
    return Ready(str(name), merged(model).eval(), Tokenizer(data.tokenizer()) if recipe.data.tokenizer else None, recipe, folder)


def complain(line: str) -> None:
    print(f"weft: {line}", file=sys.stderr)


def tokenizer_of(folder: Path, spec: S.Model) -> Tokenizer | None:
    """The tokenizer beside a model, which never gives ids that the model does not know."""
    file = member(folder, "tokenizer.json")
    found = Tokenizer.load(file) if file else None
    known = getattr(spec.source, "vocabulary", None)
    if found is not None and known is not None and found.size > known:
        found.limit = known
    return found
