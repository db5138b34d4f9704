"""`weft look`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import count_of, print_result, spinner
from . import AddCommand
from .options import add_device, add_model_name, add_precision, positive_int
from .rows import check_input_files, check_keeps_inputs, check_output_file, check_outside_model

if TYPE_CHECKING:
    from rich.console import Group

    from ..observe.relations import RelationScore


def look(args: argparse.Namespace) -> int:
    check_files(args)
    with spinner(f"opening {args.name}"):
        from ..inference.look import look as observe
        from ..inference.open_model import open_model
        from ..observe.figure import save_observation

        model = open_model(args.name, device=args.device)
    with spinner(f"looking into {args.name}"):
        observation = observe(model, args.example, args.target, args.precision == "bf16")
        scores = []
        if args.relations:
            from ..data.conllu import read_conllu
            from ..inference.relations import probe_relations, with_relations

            scores = probe_relations(model, read_conllu(args.relations))
            observation = with_relations(observation, scores)
        place = {"kind": args.attention, "layer": args.layer, "head": args.head}
        save_observation(observation, args.output, **place)
    summary = {
        "file": args.output,
        "bytes": Path(args.output).stat().st_size,
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
    print_result(args, summary, lambda width: report_page(args.output, summary, scores, width))
    if args.open:
        import webbrowser

        webbrowser.open(Path(args.output).resolve().as_uri())
    return 0


def check_files(args: argparse.Namespace) -> None:
    """Raise before the work if a file cannot be read, or the output not be written."""
    check_output_file(args.output)
    relations = [args.relations] if args.relations else []
    check_input_files("--relations", relations)
    check_keeps_inputs("--output", [args.output], [args.example or "", *relations])
    check_outside_model("--output", [args.output], args.name)
    if args.open and Path(args.output).suffix != ".html":
        raise ValueError(f"--open shows a page; give --output a name with .html, not {args.output}")


def report_page(
    path: str, summary: dict[str, Any], scores: list["RelationScore"], width: int
) -> "Group":
    """What was drawn, and the best head of each relation."""
    from rich.console import Group

    parts: list[Any] = ["\n".join([*map(line, summary["attention"]), f"drawn in {path}"])]
    if scores:
        from ..observe.relations import COLUMNS, table_rows
        from .tables import plain_table

        parts.append(plain_table(*COLUMNS, rows=table_rows(scores), width=width))
    return Group(*parts)


def line(panel: dict[str, Any]) -> str:
    layers, heads = count_of(panel["layers"], "layer"), count_of(panel["heads"], "head")
    return f"{panel['kind']}: {layers} of {heads}, {panel['queries']} × {panel['keys']} tokens"


def add(verb: AddCommand) -> None:
    parser = verb(
        look,
        "draw what a model attends to, as a page or a picture",
        "The page is one file that works offline: every head, one head, one word, what each layer would predict; of an image "
        "also attention on the image, its distance, filters and positions.",
    )
    add_model_name(parser)
    parser.add_argument(
        "example",
        metavar="INPUT",
        nargs="?",
        help="text, or image file (default: a sentence; of a model of images, only filters and positions)",
    )
    parser.add_argument(
        "--target",
        metavar="TEXT",
        help="what the decoder beside an encoder reads (default: what the model generates)",
    )
    parser.add_argument(
        "--relations",
        metavar="FILE",
        help="CoNLL-U file: find the head that follows each dependency relation best",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="look.html",
        metavar="FILE",
        help="page (.html) or picture (.png, .svg, .pdf) to write (default: look.html)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument(
        "--attention",
        metavar="NAME",
        help="attention of a picture, such as cross (default: the first)",
    )
    parser.add_argument(
        "--layer", type=positive_int, metavar="N", help="layer of a picture of one head, from 1"
    )
    parser.add_argument(
        "--head", type=positive_int, metavar="N", help="head of a picture of one head, from 1"
    )
    add_precision(parser)
    add_device(parser)
