"""What can be built, and folders of models."""
import argparse
from math import isfinite
from pathlib import Path

from ..say import tell, waiting
from . import Verb


def families(args: argparse.Namespace) -> int:
    from .. import show
    found = show.sizes()
    tell(args, found, lambda width: show.catalogue(found, width))
    return 0


def show(args: argparse.Namespace) -> int:
    from .. import show, spec
    if is_recipe(args.name):
        return show_recipe(args)
    if args.set:
        raise ValueError(f"--set changes a recipe, and {args.name} is a model; give a recipe's file")
    try:
        from ..families import preset
        name, model = preset(args.name)
    except ValueError:
        if not Path(args.name).is_dir():
            raise
        from ..interop.describe import describe
        name, model = args.name, describe(Path(model_of(args.name)))[1]
    length = show.length(model)
    found = {"name": name, "parameters": model.parameters(), "flops": model.flops(length=length), "length": length,
             "spec": spec.to_plain(model)}
    tell(args, found, lambda width: show.page(name, model, width))
    return 0


def is_recipe(name: str) -> bool:
    """A recipe's file, with or without :name, or a run that has no model yet."""
    file = Path(name.partition(":")[0])
    return file.suffix == ".py" or file.name == "recipe.json" or ((file / "recipe.json").is_file() and not (file / "model").is_dir())


def show_recipe(args: argparse.Namespace) -> int:
    from .. import recipe, summary
    from .training import speaker
    found = recipe.change(recipe.read(args.name), args.set, speaker())
    tell(args, summary.summary(found), lambda width: summary.page(found))
    return 0


def verify(args: argparse.Namespace) -> int:
    from .. import show
    with waiting(f"comparing {args.folder} with transformers"):
        from ..evaluate.compare import LIMIT, compare
        from ..interop import verify
        from ..interop.hub import fetch
        from ..ready import ready
        folder = fetch(model_of(args.folder))
        found = verify.verify(folder)
        checks = compare(ready(folder), folder)
    same = all(difference <= LIMIT for difference in found.values()) and not any(check.differ for check in checks)     # a NaN is not
    plain = {"folder": args.folder, "differences": {n: d if isfinite(d) else None for n, d in found.items()}, "limit": LIMIT,
             "checks": {check.name: dict(zip(check._fields[1:], check[1:], strict=True)) for check in checks}, "same": same}
    tell(args, plain, lambda width: show.differences(found, {check.name: check.line for check in checks}, width))
    if not args.json:
        print(f"{'the same' if same else 'not the same'} within {LIMIT:g}")
    return 0 if same else 1


def convert(args: argparse.Namespace) -> int:
    from .. import show
    from ..interop.describe import inside, refuse
    out = Path(args.out)
    if out.resolve() == Path(model_of(args.folder)).resolve():
        raise ValueError(f"{args.out} is the folder to read; give another one to write")
    refuse(out, args.overwrite)
    with waiting(f"converting {args.folder}"):
        from ..interop.folder import load, save
        from ..interop.hub import fetch
        folder = fetch(model_of(args.folder))
        model = load(folder, dtype=None)
        save(model, out, to=args.to)
    found = {"read": inside(folder, model.spec), "written": inside(out, model.spec)}
    tell(args, found, lambda width: show.folders(found, width))
    return 0


def model_of(name: str) -> str:
    """Of a run that is finished, its model's folder."""
    found = Path(name) / "model"
    return str(found) if (Path(name) / "recipe.json").is_file() and found.is_dir() else name


def add(verb: Verb) -> None:
    verb(families, "what can be built: families, sizes with their parameters, papers")
    made = verb(show, "a model's parts with shapes and parameters, its block as an equation, its cost; or a recipe's parts and cost")
    made.add_argument("name", metavar="NAME", help="such as bert-base, llama-3.2-1b or bert; a folder with config.json or weft.json; "
                                                   "a recipe, such as recipes/bert.py or recipes/bert.py:paper")
    made.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change the recipe before it is shown")
    verb(verify, "compare a folder here and in transformers: outputs, tokens, images, generation, embeddings, classes",
         "Exit code 1 where an output differs by more than 1e-5, or any token, pixel, answer or vector differs.").add_argument(
        "folder", metavar="FOLDER", help="a folder or hub name in Hugging Face's layout")
    made = verb(convert, "write a folder's model in Hugging Face's layout or in Weft's")
    made.add_argument("folder", metavar="IN", help="a folder or hub name, in either layout")
    made.add_argument("out", metavar="OUT", help="a new or an empty folder; with --overwrite also a model's folder")
    made.add_argument("--to", required=True, choices=("hf", "weft"), help="the layout to write")
    made.add_argument("--overwrite", action="store_true", help="replace the model that OUT holds")
