"""The verbs of `weft` by what they are for, the most used first."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_type_hints

from ..options.declare import Options
from . import (
    compare,
    completion,
    detect,
    doctor,
    evaluate,
    generate,
    look,
    models,
    new,
    plan,
    predict,
    probe,
    quickstart,
    reconstruct,
    train,
    tune,
)

GROUPS: dict[str, tuple[Callable[[Any], int], ...]] = {
    "start": (
        new.new,
        quickstart.quickstart,
        models.families,
        doctor.doctor,
        completion.completion,
    ),
    "train": (train.train, tune.tune, train.resume, train.status, train.prepare, plan.plan),
    "use": (
        generate.generate,
        predict.classify,
        predict.embed,
        predict.answer,
        predict.tag,
        predict.fill,
        generate.translate,
        detect.detect,
    ),
    "understand": (
        look.look,
        evaluate.evaluate,
        compare.compare,
        models.show,
        probe.probe,
        reconstruct.reconstruct,
    ),
    "ship": (models.export, models.verify),
}


class Verb(NamedTuple):
    """A verb: the function that runs it, its options, and what it says of itself."""

    name: str
    run: Callable[[Any], int]
    options: type[Options]
    # one line, without a capital letter and a full stop
    help: str
    description: str


def verb_of(run: Callable[[Any], int]) -> Verb:
    """Describe a verb by its function: the name, the type of its argument, the docstring."""
    first, *more = " ".join((run.__doc__ or "").split()).split(". ", 1)
    options, *_ = get_type_hints(run).values()
    help = first.removesuffix(".")
    description = ". ".join([help, *more]) + ("" if more else ".")
    return Verb(run.__name__, run, options, help[0].lower() + help[1:], description)


def all_verbs() -> Iterator[Verb]:
    for functions in GROUPS.values():
        yield from map(verb_of, functions)
