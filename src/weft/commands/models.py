"""The commands `weft families`, `show`, `verify` and `export`."""

import sys
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..support.console import print_result, report_on_first_rank, spinner
from ..support.options.declare import Option
from ..support.options.shared import Overrides, Overwrite, VerbOptions
from . import head_note

if TYPE_CHECKING:
    from ..spec import Spec


@dataclass(frozen=True, kw_only=True)
class FamiliesOptions(VerbOptions):
    """The options of `weft families`."""


@dataclass(frozen=True, kw_only=True)
class ShowOptions(VerbOptions):
    """The options of `weft show`."""

    name: Annotated[
        str,
        Option(
            "model such as bert-base, llama-3.2-1b or bert, "
            "folder with config.json or weft.json, or "
            "recipe such as recipes/bert.py or recipes/bert.py:paper",
            metavar="NAME",
            positional=True,
        ),
    ]
    set: Overrides = ()


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(VerbOptions):
    """The options of `weft verify`."""

    folder: Annotated[
        str,
        Option(
            "model folder or hub name, in Hugging Face's layout", metavar="FOLDER", positional=True
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class ExportOptions(VerbOptions):
    """The options of `weft export`."""

    folder: Annotated[
        str,
        Option("run, model folder or hub name, in either layout", metavar="IN", positional=True),
    ]
    output: Annotated[
        str,
        Option(
            "folder to write; new or empty; --overwrite replaces a model folder",
            metavar="OUT",
            positional=True,
        ),
    ]
    to: Annotated[Literal["hf", "weft"], Option("layout to write: hf (Hugging Face's) or weft")] = (
        "hf"
    )
    overwrite: Overwrite = False


def families(options: FamiliesOptions) -> int:
    """List the architectures with their sizes, parameters and papers."""
    from .tables import families_table, family_sizes

    sizes = family_sizes()
    print_result(options.json, sizes, lambda width: families_table(sizes, width))
    return 0


def show(options: ShowOptions) -> int:
    """Show the parts, parameters and cost of a model or a recipe."""
    from .. import spec
    from ..spec import describe as describe_module
    from . import show

    if is_recipe(options.name):
        return show_recipe(options)
    if options.set:
        raise ValueError(
            f"--set changes a recipe, and {options.name} is a model; give a recipe file"
        )
    name, model = named_spec(options.name)
    length = describe_module.default_length(model)
    summary = {
        "name": name,
        "parameters": model.parameter_count(),
        "flops": model.flops(length=length),
        "length": length,
        "spec": spec.to_plain(model),
    }
    print_result(options.json, summary, lambda width: show.model_page(name, model, width))
    return 0


def named_spec(name: str) -> tuple[str, "Spec"]:
    """Return the full name and the spec of a family's size or of a model folder."""
    try:
        from ..families import spec_of_name

        return spec_of_name(name)
    except ValueError:
        from ..interop.huggingface.hub import packaged_folder

        folder = packaged_folder(name) or Path(model_folder(name))
        if not folder.is_dir():
            raise
        from ..interop.huggingface.describe import read_folder

        return name, read_folder(folder)[1]


def is_recipe(name: str) -> bool:
    """Return whether the name is a recipe: a file, optionally with :name, or a run without a
    model."""
    from ..interop.manifest import model_of_run

    file = Path(name.partition(":")[0])
    return (
        file.suffix == ".py"
        or file.name == "recipe.json"
        or ((file / "recipe.json").is_file() and model_of_run(file) is None)
    )


def show_recipe(options: ShowOptions) -> int:
    from .. import recipe
    from . import show

    loaded = recipe.apply_overrides(
        recipe.load_recipe(options.name), list(options.set), report_on_first_rank
    )
    summary = show.recipe_summary(loaded)
    print_result(options.json, summary, lambda width: show.recipe_page(loaded, summary))
    return 0


def verify(options: VerifyOptions) -> int:
    """Compare a model with transformers: outputs, tokens, images, generation, embeddings, classes.

    Runs both on the CPU in fp32. Exits with code 1 if outputs differ by more than 1e-5, or if any
    token, pixel, answer or vector differs.
    """
    from .tables import differences_table

    with spinner(f"comparing {options.folder} with transformers"):
        from ..evaluation.compare import LIMIT, compare_with_transformers
        from ..inference.open_model import open_model
        from ..interop.huggingface import verify
        from ..interop.huggingface.hub import local_folder

        folder = local_folder(model_folder(options.folder))
        differences = verify.verify(folder)
        checks = compare_with_transformers(open_model(folder, device="cpu"), folder)
    # a NaN is not the same
    same_outputs = all(difference <= LIMIT for difference in differences.values())
    same = same_outputs and not any(check.differ for check in checks)
    plain = {
        "folder": options.folder,
        "differences": {n: d if isfinite(d) else None for n, d in differences.items()},
        "limit": LIMIT,
        "checks": {
            check.name: dict(zip(check._fields[1:], check[1:], strict=True)) for check in checks
        },
        "same": same,
    }
    lines = {check.name: check.line for check in checks}
    print_result(options.json, plain, lambda width: differences_table(differences, lines, width))
    if not options.json:
        print(f"{'equal' if same else 'different'} within {LIMIT:g}")
    return 0 if same else 1


def export(options: ExportOptions) -> int:
    """Export a model as a folder that Hugging Face's classes open.

    Reads a run (its newest checkpoint if it is not finished), a model folder or a hub name, in
    Hugging Face's or Weft's layout, one tensor at a time.
    """
    from ..interop.huggingface.describe import check_output_folder, folder_summary
    from ..interop.manifest import model_of_run
    from .tables import folders_table

    out = Path(options.output)
    run = Path(options.folder)
    if out.resolve() == Path(model_folder(options.folder)).resolve():
        raise ValueError(f"{options.output} is the input folder; give another output folder")
    check_output_folder(out, options.overwrite)
    folders = {}
    with spinner(f"exporting {options.folder}"):
        if (run / "recipe.json").is_file() and model_of_run(run) is None:
            from ..runs.export import export_checkpoint

            complain = partial(print, file=sys.stderr)
            spec = export_checkpoint(run, out, options.to, complain)
        else:
            from ..interop.huggingface.hub import local_folder

            folder = local_folder(model_folder(options.folder))
            spec = convert(folder, out, options.to)
            folders["read"] = folder_summary(folder, spec)
    folders["written"] = folder_summary(out, spec)
    print_result(options.json, folders, lambda width: folders_table(folders, width))
    if options.to == "hf" and (note := head_note(spec)):
        print(f"weft: {note}", file=sys.stderr)
    return 0


def convert(folder: Path, out: Path, to: Literal["hf", "weft"]) -> "Spec":
    """Write the model of a folder in the given layout and return its spec."""
    from ..interop.loading import open_weights
    from ..interop.saving import save

    with open_weights(folder, dtype=None) as weights:
        save(weights.model, out, to=to, weights=weights.read_whole)
        return weights.model.spec


def model_folder(name: str) -> str:
    """Return the model folder of a finished run, or the name unchanged."""
    from ..interop.manifest import model_of_run

    model = model_of_run(Path(name)) if (Path(name) / "recipe.json").is_file() else None
    return name if model is None else str(model)
