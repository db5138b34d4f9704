"""The only golden-test module that imports Weft: renamings change this file, never the golden
file.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tests import whole_runs
from weft import recipe as R
from weft import spec
from weft.families import family, family_names
from weft.generate.decoding import generate
from weft.interop.saving import save
from weft.nn.model import build
from weft.support.values import from_plain, to_plain

ROOT = Path(__file__).parents[2]
# these run a second time with the dropout they have
DROPOUT = (
    "translate_multi30k:tiny",
    "classify_sst2:tiny",
    "gpt_char:large",
)
FAMILIES = family_names()


class Step(NamedTuple):
    loss: float
    gradient_norm: float


def recipe_names() -> list[str]:
    """`file:variable` of every recipe that runs on a laptop: all but those that the papers ran."""
    return [
        f"{path.stem}:{name}"
        for path in sorted((ROOT / "recipes").glob("*.py"))
        for name, value in vars(load(path)).items()
        if isinstance(value, R.Recipe) and not value.paper
    ]


def load(path: Path) -> Any:
    found = spec_from_file_location(path.stem, path)
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def small_recipe(name: str, steps: int, dropout: bool) -> R.Recipe:
    """The recipe with small matrices, two blocks per stack, few short rows and all of its schedule
    in `steps` steps; fp32, one process.
    """
    recipe: R.Recipe = from_plain(
        smaller(to_plain(R.load_recipe(str(ROOT / "recipes" / f"{name.replace(':', '.py:')}"))))
    )
    batch = recipe.batch
    if isinstance(batch, R.TokenBudget):
        batch = replace(batch, tokens=256)
    else:
        batch = replace(
            batch,
            size=4,
            length=batch.length
            if isinstance(recipe.task, R.QuestionAnswering)
            else min(batch.length, 64),
        )
    lengths = tuple((share, min(length, batch.length)) for share, length in recipe.length_schedule)
    recipe = replace(
        recipe,
        batch=batch,
        length_schedule=lengths,
        steps=steps,
        schedule=replace(recipe.schedule, warmup_steps=steps // 3),
        precision="fp32",
        average=None,
        eval_every=None,
        workers=0,
    )
    return recipe if dropout else spec.with_dropout(recipe, 0.0)  # type: ignore[arg-type, return-value]


def smaller(plain: Any) -> Any:
    """A recipe's plain values with a quarter of every width (and no more than 48), a vocabulary of
    1,024 and two blocks.
    """
    if isinstance(plain, list):
        return [smaller(part) for part in plain]
    if not isinstance(plain, dict):
        return plain
    change: dict[str, Callable[[Any], Any]] = {
        "embedding_dim": lambda n: n and min(n // 4, 48),
        "width": lambda n: n and min(n // 4, 48),
        "hidden": lambda n: min(n // 4, 192),
        "vocab_size": lambda n: min(n, 1024),
        "blocks": lambda blocks: blocks[:2],
    }
    return {
        name: smaller(change[name](part) if name in change else part)
        for name, part in plain.items()
    }


def needed_model(recipe: R.Recipe) -> tuple[str, str] | None:
    """The folder of a trained model that a recipe reads, and the recipe which would have made
    it.
    """
    folder = recipe.init_from or (
        recipe.task.teacher if isinstance(recipe.task, R.Distillation) else None
    )
    if folder is None:
        return None
    run = Path(folder).parent.name
    return folder, next(
        name
        for name in recipe_names()
        if R.load_recipe(str(ROOT / "recipes" / name.replace(":", ".py:"))).name == run
    )


def amplifies_rounding(recipe: R.Recipe) -> bool:
    """Muon raises small singular values five-hundredfold, Adafactor divides by factored moments:
    the last bit of a gradient becomes the third digit of a step.
    """
    return isinstance(recipe.optimiser, R.Muon | R.Adafactor)


def build_model(model_spec: spec.Spec) -> nn.Module:
    return build(model_spec)


def save_model(model: Any, folder: str, recipe: R.Recipe) -> None:
    """As the recipe's own run would have: with what it saw of an image."""
    save(model, folder, to="weft", transforms=R.transforms_for(recipe.task, evaluation=True))


def start(recipe: R.Recipe) -> tuple[nn.Module, Iterator[Step]]:
    """Everything that is trained, and the steps; the data is prepared in the working directory."""
    made = whole_runs.build_run(recipe)
    return made.loss, (Step(event.loss, event.grad_norm) for event in made.trainer)


# One model per family, described by the words of published config.json files, which stay


def family_model(name: str, config: dict[str, Any]) -> nn.Module:
    if name == "transformer":  # has no published file
        return build(
            family(name)(depth=2, width=32, heads=4, hidden=48, vocab_size=67, dropout=0.0)
        )
    if name == "cct":  # published as pickles
        return build(family(name)(depth=2, width=32, heads=2, hidden=48, image_size=32))
    if name == "palm":  # never published
        return build(family(name)(depth=2, width=32, heads=4, head_dim=8, hidden=48, vocab_size=67))
    return build(family(name).from_config(config))


def reads_images(model: Any) -> bool:
    return not isinstance(model.spec.source, spec.Tokens)


def writes_text(model: Any) -> bool:
    return model.decoder is not None and isinstance(model.spec.head, spec.LMHead)


def generate_greedily(
    model: Any, prompts: list[list[int]], count: int
) -> list[tuple[list[int], list[float]]]:
    """Tokens and their log-probabilities, through the cache."""
    starts = None if model.encoder is None else [[1]] * len(prompts)
    return [
        (row.tokens, row.logprobs)
        for row in generate(model, prompts, max_new_tokens=count, decoder_inputs=starts)
    ]


def outputs(model: Any, inputs: Tensor, targets: Tensor | None) -> list[Tensor]:
    """The tensors that the head gives. An encoder-decoder of text also reads `targets`."""
    with torch.no_grad():
        found = (
            model(inputs, targets)
            if model.encoder is not None and writes_text(model)
            else model(inputs)
        )
    return (
        [found]
        if isinstance(found, Tensor)
        else [part for part in found if isinstance(part, Tensor)]
    )
