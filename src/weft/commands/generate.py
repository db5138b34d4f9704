"""`weft generate` and `weft translate`."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..console import print_result, report, spinner
from . import COLUMN_PREFIX_HELP, AddCommand, Fields
from .options import (
    add_batch_size,
    add_beam_search,
    add_columns_option,
    add_device,
    add_input,
    add_max_bad_rows,
    add_model_name,
    add_precision,
    add_seed,
    add_texts,
    positive_int,
)
from .rows import (
    TABLE_SUFFIXES,
    add_columns,
    check_outside_model,
    input_rows,
    report_written,
    write_output_rows,
)

if TYPE_CHECKING:
    from ..generate.sampling import Sampling
    from ..generate.text_generator import Generation, TextGenerator

DEFAULT_NEW_TOKENS, PACK_FROM_ROWS = 128, 4
DEMO_PROMPT, DEMO_TEMPERATURE, DEMO_TOKENS = "ROMEO:\n", 0.7, 240
TEXT = ("prompt", "text", "source", "src", "sentence", "question")


def generate(args: argparse.Namespace) -> int:
    use_demo_prompt(args)
    sampling_options = sampling(args)
    if args.num_beams and (
        args.draft_model
        or args.num_samples > 1
        or args.stop
        or sampling_options.temperature
        or sampling_options.repetition_penalty != 1
    ):
        raise ValueError(
            "--num-beams cannot be combined with sampling, --repetition-penalty, --stop or --draft-model; leave one out"
        )
    if "" in args.stop:
        raise ValueError("--stop needs a text; an empty one would stop at once")
    if args.num_return > 1 and not args.num_beams:
        raise ValueError(
            "--num-return needs --num-beams; to sample several answers, use --num-samples"
        )
    if args.draft_model:
        check_outside_model("--output", [args.output], args.draft_model)
    rows = input_rows(args, [args.prompt] if args.prompt is not None else [], ())
    writer = open_generator(args, len(rows))
    column = None if args.chat and "messages" in rows[0] else text_column(args, rows)
    prompts, limits = encode_prompts(args, writer, rows, column)
    one = (
        len(rows) == 1
        and not (args.json or args.output or args.num_beams or args.draft_model or args.logprobs)
        and args.num_samples == 1
    )
    if one:
        pieces = writer.stream(
            prompts[0],
            max_new_tokens=limits[0],
            sampling=sampling_options,
            stop_strings=stops(args),
        )
        return print_stream(pieces, hint="" if args.chat else chat_hint(writer))
    generations = generate_rows(args, writer, prompts, limits, sampling_options)
    several = args.num_samples > 1 or args.num_return > 1
    add_columns(
        rows,
        [
            {"answers": [generation_fields(args, one) for one in answers]}
            if several
            else generation_fields(args, answers[0])
            for answers in generations
        ],
    )
    return output_texts(
        args, rows, [escape_newlines(one.text) for answers in generations for one in answers]
    )


def print_stream(pieces: Iterable[str], hint: str) -> int:
    """Print a text as it comes; print the hint if none came."""
    printed = ""
    for piece in pieces:
        print(piece, end="", flush=True)
        printed += piece
    print()
    if hint and not printed.strip():
        print(hint, file=sys.stderr)
    return 0


def chat_hint(writer: "TextGenerator") -> str:
    """Return what to try with a model of conversations that ends a plain text at once."""
    from ..generate.chat_template import has_chat_template

    if not has_chat_template(writer.folder):
        return ""
    return "weft: the model ended its answer at once; it has a chat template: try --chat"


def use_demo_prompt(args: argparse.Namespace) -> None:
    """`weft generate demo` works without a prompt: then it samples, since greedy characters repeat themselves."""
    from ..interop.hub import packaged_folder

    if args.prompt is not None or args.file or packaged_folder(args.name) is None:
        return
    if has_standard_input():
        return
    args.prompt, args.max_new_tokens = DEMO_PROMPT, args.max_new_tokens or DEMO_TOKENS
    if args.temperature is None and not args.num_beams:
        args.temperature = DEMO_TEMPERATURE
    if not (args.json or args.output):
        print(DEMO_PROMPT, end="", flush=True)
    if sys.stderr.isatty():
        report(
            'a prompt of your own: weft generate demo "JULIET:" --temperature 0.7 --seed 1; what it attends to: weft look demo --open'
        )


def has_standard_input() -> bool:
    """Return whether a pipe or a file gives something to read; a closed standard input gives nothing."""
    try:
        return not sys.stdin.isatty() and bool(sys.stdin.buffer.peek(1))  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return False


def translate(args: argparse.Namespace) -> int:
    from ..runs.progress import CountProgressLine

    rows = input_rows(args, args.texts, ())
    writer, column = open_generator(args, len(rows)), text_column(args, rows)
    with CountProgressLine("translated") as progress:
        translations = writer.translate(
            [row[column] for row in rows],
            num_beams=args.num_beams,
            length_penalty=args.length_penalty,
            batch_size=args.batch_size,
            progress=progress,
        )
    add_columns(rows, [{"translation": text} for text in translations])
    return output_texts(args, rows, [" ".join(text.split("\n")) for text in translations])


def encode_prompts(
    args: argparse.Namespace, writer: "TextGenerator", rows: list[Fields], column: str | None
) -> tuple[list[list[int]], list[int]]:
    """Return the prompts, and the maximum number of tokens of each answer."""
    from ..generate.text_generator import map_rows

    prompts = map_rows(lambda row: prompt_of(writer, row, column, args.chat), rows)
    return prompts, map_rows(
        lambda prompt: writer.max_new_tokens(prompt, args.max_new_tokens, DEFAULT_NEW_TOKENS),
        prompts,
    )


def generate_rows(
    args: argparse.Namespace,
    writer: "TextGenerator",
    prompts: list[list[int]],
    limits: list[int],
    sampling: "Sampling",
) -> list[list["Generation"]]:
    from ..runs.progress import CountProgressLine

    with CountProgressLine("answered") as progress:
        if args.num_beams:
            return writer.beam_search(
                prompts,
                num_beams=args.num_beams,
                length_penalty=args.length_penalty,
                max_new_tokens=limits,
                num_return=args.num_return,
                batch_size=args.batch_size,
                progress=progress,
            )
        draft = None
        if args.draft_model:
            from ..inference.open_model import open_model

            draft = open_model(args.draft_model, device=args.device).model
        return writer.generate(
            prompts,
            max_new_tokens=limits,
            sampling=sampling,
            stop_strings=stops(args),
            samples=args.num_samples,
            draft_model=draft,
            batch_size=args.batch_size,
            progress=progress,
        )


def sampling(args: argparse.Namespace) -> "Sampling":
    """Return the sampling options; any of them turns sampling on."""
    from ..generate.sampling import FIELDS, sampling_from

    options = {name: getattr(args, name) for name in FIELDS}
    if args.num_samples > 1 and args.temperature is None:
        options["temperature"] = 1.0
    return sampling_from(options)


def stops(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(stop.replace("\\n", "\n") for stop in args.stop)


def open_generator(args: argparse.Namespace, rows: int) -> "TextGenerator":
    """Open the model; with many rows its weights are packed for the CPU first."""
    with spinner(f"opening {args.name}"):
        from ..generate.text_generator import TextGenerator, use_one_thread_if_small
        from ..inference.open_model import open_model

        model = open_model(args.name, device=args.device)
        if model.model.device.type == "cpu":
            use_one_thread_if_small(model.model)
            packs = args.precision != "fp32" or rows > PACK_FROM_ROWS
            return TextGenerator(model, args.precision if packs else None)
        if args.precision == "int8":
            raise ValueError(
                "--precision int8 is for the CPU; use --precision bf16 or --device cpu"
            )
        if args.precision == "bf16":
            model.model.bfloat16()
        return TextGenerator(model)


def prompt_of(writer: "TextGenerator", row: Fields, column: str | None, chat: bool) -> list[int]:
    if not chat:
        return writer.encode_prompt(row[column or ""])
    return writer.encode_chat(
        row.get("messages", []) if column is None else [{"role": "user", "content": row[column]}]
    )


# What comes in


def text_column(args: argparse.Namespace, rows: list[Fields]) -> str:
    from ..data.reading.column_names import check_columns_exist, find_column, require_column

    if len(args.columns) > 1:
        raise ValueError(f"--columns {' '.join(args.columns)}: give one, the column of the text")
    check_columns_exist(rows[0], args.columns)
    only = next(iter(rows[0])) if len(rows[0]) == 1 else None
    column = require_column(
        rows[0],
        next(iter(args.columns), only) or find_column(rows[0], TEXT),
        "text",
        "--columns",
    )
    wrong = next((i for i, row in enumerate(rows, 1) if not isinstance(row.get(column), str)), None)
    if wrong is not None:
        raise ValueError(f"row {wrong} has no text in {column!r}")
    return column


# What goes out


def generation_fields(args: argparse.Namespace, answer: "Generation") -> Fields:
    fields: Fields = {"answer": answer.text, "ended": answer.tokens.finished}
    if args.num_beams:
        fields["score"] = answer.tokens.score
    if args.logprobs:
        fields |= {"tokens": answer.tokens.tokens, "logprobs": answer.tokens.logprobs}
    return fields


def escape_newlines(text: str) -> str:
    """Escape line breaks, so that every answer is one line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def output_texts(args: argparse.Namespace, rows: list[Fields], lines: list[str]) -> int:
    if not args.output:
        print_result(args, rows, lambda width: "\n".join(lines))
        return 0
    if Path(args.output).suffix.lower() in TABLE_SUFFIXES:
        write_output_rows(args.output, rows)
    else:
        Path(args.output).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return report_written(len(rows), args.output)


def common(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add_input(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="output file: .jsonl, .json, .csv, .tsv or .parquet, the rows with what was generated "
        f"({COLUMN_PREFIX_HELP}); else text, one line per row",
    )
    add_max_bad_rows(parser, 0.0)
    add_columns_option(parser, "column of the text")
    add_batch_size(parser)
    add_precision(parser, note="fp32; int8 is for the CPU", choices=("fp32", "bf16", "int8"))
    add_device(parser)
    return parser


def add(verb: AddCommand) -> None:
    parser = common(
        verb(
            generate,
            "generate text from a prompt",
            "One prompt is streamed. Several are answered in order, one line each, with line breaks written as "
            r"\n and \r and backslashes as \\.",
        )
    )
    add_model_name(parser)
    parser.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        help="text to continue (default: read --input or standard input; demo has one)",
    )
    parser.add_argument(
        "--max-new-tokens",
        type=positive_int,
        metavar="N",
        help=f"maximum number of tokens to generate (default: {DEFAULT_NEW_TOKENS}, or what fits)",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="sampling temperature; 0 is greedy decoding (default: 0, or 1 when any sampling option is given)",
    )
    parser.add_argument(
        "--top-k", type=positive_int, metavar="K", help="sample from the K most likely tokens"
    )
    parser.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="sample from the smallest set of tokens whose probabilities sum to P",
    )
    parser.add_argument(
        "--min-p",
        type=float,
        metavar="P",
        help="sample from tokens at least P times as likely as the most likely one",
    )
    parser.add_argument(
        "--repetition-penalty",
        type=float,
        default=1.0,
        metavar="R",
        help="above 1, tokens that occurred before become less likely (default: 1)",
    )
    add_seed(parser, default=None)
    parser.add_argument(
        "--num-samples",
        type=positive_int,
        default=1,
        metavar="N",
        help="number of samples per prompt, with the seeds SEED, SEED + 1, … (default: 1)",
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="text that ends an answer; it is not part of it (repeatable)",
    )
    add_beam_search(parser, num_beams=None)
    parser.add_argument(
        "--num-return",
        type=positive_int,
        default=1,
        metavar="N",
        help="number of answers of beam search to return (default: 1)",
    )
    parser.add_argument(
        "--logprobs",
        action="store_true",
        help="also return the tokens and their log-probabilities (with --json or --output)",
    )
    parser.add_argument(
        "--chat",
        action="store_true",
        help="treat the prompt, or a row's `messages`, as a conversation and apply the chat template",
    )
    parser.add_argument(
        "--draft-model",
        metavar="NAME",
        help="small model with the same tokenizer for speculative decoding; the distribution of answers does not change",
    )
    parser = common(
        verb(
            translate,
            "translate texts",
            "Prints one line per text. Beam search; a translation has at most 50 tokens more than its text.",
        )
    )
    add_model_name(parser)
    add_texts(parser)
    add_beam_search(parser)
