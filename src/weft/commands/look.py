"""The command `weft look`: attention maps and other views of a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..support.console import count_of, print_result, spinner
from ..support.options.declare import Option
from ..support.options.shared import DeviceOptions, ModelOptions, VerbOptions
from .files import check_input_files, check_keeps_inputs, check_output_file, check_outside_model

if TYPE_CHECKING:
    from rich.console import Group

    from ..inference.images import ImageInput
    from ..inference.open_model import OpenModel
    from ..observe.panels import Observation
    from ..observe.relations import RelationScore

EXAMPLE = Option(
    "text, or image file",
    default="a sentence; for an image model, only filters and positions",
    metavar="INPUT",
    positional=True,
)
OUTPUT = Option("page (.html) or picture (.png, .svg, .pdf) to write", metavar="FILE", short="-o")


@dataclass(frozen=True, kw_only=True)
class ViewOptions(DeviceOptions):
    """Options for views of a model, shared by `weft look` and `weft.look`."""

    target: Annotated[
        str | None,
        Option(
            "input text of the decoder, for an encoder-decoder",
            default="what the model generates",
            metavar="TEXT",
        ),
    ] = None
    relations: Annotated[
        str | None,
        Option(
            "CoNLL-U file; find the head that best follows each dependency relation",
            metavar="FILE",
        ),
    ] = None
    attention: Annotated[
        str | None,
        Option(
            "attention to draw in an image file, such as cross", default="the first", metavar="NAME"
        ),
    ] = None
    layer: Annotated[
        int | None, Option("layer of --head, counted from 1", metavar="N", least=1)
    ] = None
    head: Annotated[int | None, Option("draw one head, counted from 1", metavar="N", least=1)] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class LookOptions(ModelOptions, ViewOptions, VerbOptions):
    """The options of `weft look`."""

    example: Annotated[str | None, EXAMPLE] = None
    output: Annotated[str, OUTPUT] = "look.html"
    open: Annotated[bool, Option("open the page in the browser")] = False


def look(options: LookOptions) -> int:
    """Draw the attention maps of a model, as a page or an image.

    The page is one file that works offline. It shows all heads, single heads and words, and the
    prediction of each layer; for an image also attention on the image, attention distance, filters
    and positions.
    """
    check_files(options)
    with spinner(f"opening {options.name}"):
        from ..inference.open_model import open_model

        model = open_model(options.name, device=options.device)
    with spinner(f"analysing {options.name}"):
        observation, scores = observe(model, options.example, options)
        save(observation, options.output, options)
    summary = {
        "file": options.output,
        "bytes": Path(options.output).stat().st_size,
        "input": observation.text,
        "attention": [
            {
                "kind": panel.kind,
                "layers": len(panel.maps),
                "heads": panel.maps[0].shape[0],
                "queries": len(panel.queries),
                "keys": len(panel.keys),
            }
            for panel in observation.panels
        ],
        "relations": [score._asdict() for score in scores],
    }
    print_result(
        options.json, summary, lambda width: report_page(options.output, summary, scores, width)
    )
    if options.open:
        import webbrowser

        webbrowser.open(Path(options.output).resolve().as_uri())
    return 0


def observe(
    model: "OpenModel", example: "str | ImageInput | None", options: ViewOptions
) -> tuple["Observation", list["RelationScore"]]:
    """Return the observation of the example, with the best head per relation if requested."""
    from ..inference.look import look as observe_input

    observation = observe_input(model, example, options.target, options.precision == "bf16")
    if not options.relations:
        return observation, []
    from ..data.reading.formats.conllu import read_conllu
    from ..evaluation.relations import probe_relations, with_relations

    scores = probe_relations(model, read_conllu(options.relations))
    return with_relations(observation, scores), scores


def save(observation: "Observation", path: "str | Path", options: ViewOptions) -> None:
    """Write the page, or the image of the attention that the options select."""
    from ..observe.figure import save_observation

    save_observation(
        observation, path, kind=options.attention, layer=options.layer, head=options.head
    )


def check_files(options: LookOptions) -> None:
    """Raise ValueError before the work if a file cannot be read or the output not written."""
    check_output_file(options.output)
    relations = [options.relations] if options.relations else []
    check_input_files("--relations", relations)
    check_outside_model("--output", [options.output], options.name)
    check_keeps_inputs("--output", [options.output], [options.example or "", *relations])
    if options.open and Path(options.output).suffix != ".html":
        raise ValueError(
            f"--open needs an HTML page; give --output NAME.html, not {options.output}"
        )


def report_page(
    path: str, summary: dict[str, Any], scores: list["RelationScore"], width: int
) -> "Group":
    """Return the printed summary and the best head per relation."""
    from rich.console import Group

    parts: list[Any] = ["\n".join([*map(line, summary["attention"]), f"wrote {path}"])]
    if scores:
        from ..observe.relations import COLUMNS, table_rows
        from .tables import plain_table

        parts.append(plain_table(*COLUMNS, rows=table_rows(scores), width=width))
    return Group(*parts)


def line(panel: dict[str, Any]) -> str:
    layers = count_of(panel["layers"], "layer")
    heads = count_of(panel["heads"], "head")
    return f"{panel['kind']}: {layers} of {heads}, {panel['queries']} × {panel['keys']} tokens"
