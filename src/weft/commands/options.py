"""Types of option values, and options that several verbs share."""

import argparse
from math import isfinite


def positive_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def finite_float(text: str) -> float:
    value = number(text)
    if not isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not finite")
    return value


def fraction(text: str) -> float:
    value = number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def add_model_name(parser: argparse.ArgumentParser, name: str = "name") -> None:
    parser.add_argument(
        name,
        metavar=name.upper(),
        help="folder of a run, folder of a model, demo (ships with Weft), or name on the Hugging Face hub",
    )


def add_texts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "texts",
        metavar="TEXT",
        nargs="*",
        help="input text (default: read --input or standard input)",
    )


def add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change the recipe (repeatable): optimiser.lr=3e-4, model.decoder.depth=6, model.decoder.blocks.*.norm=post",
    )


def add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i",
        "--input",
        dest="file",
        metavar="FILE",
        help="input file: .jsonl, .csv, .tsv, .parquet, or text with one row per line; - is standard input",
    )


def add_columns_option(
    parser: argparse.ArgumentParser, columns: str = "columns to read, with labels the label last"
) -> None:
    parser.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help=f"{columns} (default: detected by their names, columns of images by their content)",
    )


def add_column_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--column-names",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="column names of files without a header",
    )


def add_label_texts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--label-texts",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="for text2text and --few-shot: text of each class, in the sorted order of the classes (default: their names)",
    )


def add_batch_size(parser: argparse.ArgumentParser, per: str = "forward pass") -> None:
    parser.add_argument(
        "--batch-size",
        type=positive_int,
        default=32,
        metavar="ROWS",
        help=f"number of rows per {per} (default: 32)",
    )


def add_max_length(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--max-length",
        type=positive_int,
        metavar="TOKENS",
        help=f"maximum number of tokens per row (default: {default})",
    )


def add_seed(parser: argparse.ArgumentParser, default: int | None = 0) -> None:
    parser.add_argument(
        "--seed", type=int, default=default, metavar="N", help="random seed (default: 0)"
    )


def add_beam_search(parser: argparse.ArgumentParser, num_beams: int | None = 4) -> None:
    """Add --num-beams and --length-penalty; None is no beam search."""
    parser.add_argument(
        "--num-beams",
        type=positive_int,
        default=num_beams,
        metavar="N",
        help=f"number of beams of beam search (default: {num_beams or 'no beam search'})",
    )
    parser.add_argument(
        "--length-penalty",
        type=finite_float,
        default=0.6,
        metavar="X",
        help="length penalty of beam search (default: 0.6)",
    )


def add_max_bad_rows(parser: argparse.ArgumentParser, default: float = 0.001) -> None:
    few = ", or 10 rows of a small file" if default else ""
    parser.add_argument(
        "--max-bad-row-fraction",
        type=fraction,
        default=default,
        metavar="FRACTION",
        help=f"largest fraction of rows that may be skipped because they cannot be read (default: {default:g}{few})",
    )


def add_device(parser: argparse.ArgumentParser, default: str | None = "auto") -> None:
    """Add --device; a default of None is the recipe's."""
    note = "auto" if default else "the recipe's, auto unless it says otherwise"
    parser.add_argument(
        "--device",
        default=default,
        metavar="DEVICE",
        help=f"device: auto (an accelerator if available, else the CPU), cpu, or, experimental because Weft has not been run on them yet, cuda, cuda:1 or mps (default: {note})",
    )


TRAINING_PRECISIONS = ("auto", "fp32", "bf16")


def add_precision(
    parser: argparse.ArgumentParser,
    default: str | None = "fp32",
    note: str = "fp32",
    choices: tuple[str, ...] = ("fp32", "bf16"),
) -> None:
    """Add --precision; `note` says what the default is."""
    parser.add_argument(
        "--precision",
        choices=choices,
        default=default,
        help="precision of the computation"
        + "; auto is bf16 where the device is fast at it, else fp32" * ("auto" in choices)
        + f" (default: {note})",
    )


def add_code_changed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--code-changed",
        action="store_true",
        help="continue a run although a file given with --code differs from the one it began with",
    )
