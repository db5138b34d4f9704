"""The commands `weft generate` and `weft translate`."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..support.console import print_result, report, spinner
from ..support.options.declare import Option
from ..support.options.shared import (
    COLUMN_PREFIX_HELP,
    COLUMNS,
    NUM_BEAMS,
    ROWS_OUTPUT,
    BatchSize,
    BeamSearchOptions,
    Device,
    LengthPenalty,
    Precision,
    RowOptions,
    SamplingOptions,
    Texts,
    VerbOptions,
)
from . import Fields
from .files import check_outside_model
from .rows import TABLE_SUFFIXES, add_columns, input_rows, report_written, write_output_rows

if TYPE_CHECKING:
    from ..generate.sampling import Sampling
    from ..generate.text_generator import Generation, TextGenerator

DEFAULT_NEW_TOKENS = 128
DEMO_PROMPT = "ROMEO:\n"
DEMO_TEMPERATURE = 0.7
DEMO_TOKENS = 240
TEXT = ("prompt", "text", "source", "src", "sentence", "question")


@dataclass(frozen=True, kw_only=True)
class WriterOptions(RowOptions, VerbOptions):
    """The model and the input rows of a command that generates text."""

    columns: Annotated[Sequence[str], replace(COLUMNS, help="column with the text")] = ()
    output: Annotated[
        str | None,
        replace(
            ROWS_OUTPUT,
            help="output file: .jsonl, .json, .csv, .tsv or .parquet for the rows with the "
            f"generated text ({COLUMN_PREFIX_HELP}); any other name for text, one line per row",
        ),
    ] = None
    batch_size: BatchSize = 32
    precision: Precision = "fp32"
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(SamplingOptions, WriterOptions):
    """The options of `weft generate`."""

    prompt: Annotated[
        str | None,
        Option(
            "text to continue",
            default="--input or standard input; demo has its own prompt",
            metavar="PROMPT",
            positional=True,
        ),
    ] = None
    max_new_tokens: Annotated[
        int | None,
        Option(
            "maximum number of tokens to generate",
            default=f"{DEFAULT_NEW_TOKENS}, or fewer if the context is full",
            metavar="N",
            least=1,
        ),
    ] = None
    num_samples: Annotated[
        int,
        Option("samples per prompt, with the seeds SEED, SEED + 1, …", metavar="N", least=1),
    ] = 1
    stop: Annotated[
        Sequence[str],
        Option(
            "text that ends an answer, not included in the output (repeatable)",
            metavar="TEXT",
            repeat=True,
        ),
    ] = ()
    num_beams: Annotated[int | None, replace(NUM_BEAMS, default="no beam search")] = None
    length_penalty: LengthPenalty = 0.6
    num_return: Annotated[
        int, Option("number of answers to return with --num-beams", metavar="N", least=1)
    ] = 1
    logprobs: Annotated[
        bool,
        Option("add tokens and their log-probabilities to --json or --output"),
    ] = False
    chat: Annotated[
        bool,
        Option("apply the chat template to the prompt or to a row's `messages`"),
    ] = False
    draft_model: Annotated[
        str | None,
        Option(
            "small model with the same tokenizer for speculative decoding, "
            "which keeps the distribution of answers",
            metavar="NAME",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(WriterOptions, BeamSearchOptions):
    """The options of `weft translate`."""

    texts: Texts = ()


def generate(options: GenerateOptions) -> int:
    """Generate text from a prompt.

    One prompt is streamed. Several prompts print one line each, in order, with line breaks escaped
    as \\n and \\r and backslashes as \\\\.
    """
    options = with_demo_prompt(options)
    sampling_options = sampling(options)
    check_combination(options, sampling_options)
    prompts_given = [] if options.prompt is None else [options.prompt]
    if options.draft_model:
        check_outside_model("--output", [options.output], options.draft_model)
    rows = input_rows(options, prompts_given, (), whole=True)
    writer = open_generator(options)
    column = None if options.chat and "messages" in rows[0] else text_column(options, rows)
    prompts, limits = encode_prompts(options, writer, rows, column)
    if len(rows) == 1 and streams(options):
        pieces = writer.stream(
            prompts[0],
            max_new_tokens=limits[0],
            sampling=sampling_options,
            stop_strings=stops(options),
        )
        return print_stream(pieces, hint="" if options.chat else chat_hint(writer))
    generations = generate_rows(options, writer, prompts, limits, sampling_options)
    fields = [[generation_fields(options, one) for one in answers] for answers in generations]
    if options.num_samples > 1 or options.num_return > 1:
        add_columns(rows, [{"answers": answers} for answers in fields])
    else:
        add_columns(rows, [answers[0] for answers in fields])
    lines = [escape_newlines(one.text) for answers in generations for one in answers]
    return output_texts(options, rows, lines)


def check_combination(options: GenerateOptions, sampling: "Sampling") -> None:
    """Raise ValueError for mutually exclusive options."""
    beside_beams = (
        options.draft_model,
        options.num_samples > 1,
        options.stop,
        sampling.temperature,
        sampling.repetition_penalty != 1,
    )
    if options.num_beams and any(beside_beams):
        raise ValueError(
            "--num-beams cannot be combined with sampling, --repetition-penalty, --stop or "
            "--draft-model; leave one out"
        )
    if "" in options.stop:
        raise ValueError("--stop is empty; give at least one character")
    if options.num_return > 1 and not options.num_beams:
        raise ValueError("--num-return needs --num-beams; for several samples, use --num-samples")


def streams(options: GenerateOptions) -> bool:
    """Return whether the answer is printed during generation, as for a single prompt."""
    searches = options.num_beams or options.draft_model or options.num_samples > 1
    return not (options.json or options.output or options.logprobs or searches)


def print_stream(pieces: Iterable[str], hint: str) -> int:
    """Print pieces of text as they arrive; print the hint if there are none."""
    printed = ""
    for piece in pieces:
        print(piece, end="", flush=True)
        printed += piece
    print()
    if hint and not printed.strip():
        print(hint, file=sys.stderr)
    return 0


def chat_hint(writer: "TextGenerator") -> str:
    """Return a hint about --chat for a chat model whose answer to plain text is empty."""
    from ..generate.chat_template import has_chat_template

    if not has_chat_template(writer.folder):
        return ""
    return "weft: the model returned an empty answer; try --chat, since it has a chat template"


def with_demo_prompt(options: GenerateOptions) -> GenerateOptions:
    """Add a prompt and sampling to `weft generate demo` without a prompt; greedy decoding of
    characters repeats itself."""
    from ..interop.huggingface.hub import packaged_folder

    if options.prompt is not None or options.input or packaged_folder(options.name) is None:
        return options
    if has_standard_input():
        return options
    temperature = options.temperature
    if temperature is None and not options.num_beams:
        temperature = DEMO_TEMPERATURE
    if not (options.json or options.output):
        print(DEMO_PROMPT, end="", flush=True)
    if sys.stderr.isatty():
        report(
            'for another prompt: weft generate demo "JULIET:" --temperature 0.7 --seed 1; '
            "to see its attention: weft look demo --open"
        )
    new_tokens = options.max_new_tokens or DEMO_TOKENS
    return replace(options, prompt=DEMO_PROMPT, max_new_tokens=new_tokens, temperature=temperature)


def has_standard_input() -> bool:
    """Return whether a pipe or a file gives input; a closed standard input does not."""
    try:
        return not sys.stdin.isatty() and bool(sys.stdin.buffer.peek(1))  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return False


def translate(options: TranslateOptions) -> int:
    """Translate texts.

    Prints one translation per line, from beam search. A translation has at most 50 tokens more than
    its source.
    """
    from ..runs.logs.progress import CountProgressLine

    rows = input_rows(options, options.texts, ())
    writer = open_generator(options)
    column = text_column(options, rows)
    with CountProgressLine("translated") as progress:
        translations = writer.translate(
            [row[column] for row in rows],
            num_beams=options.num_beams,
            length_penalty=options.length_penalty,
            batch_size=options.batch_size,
            progress=progress,
        )
    add_columns(rows, [{"translation": text} for text in translations])
    return output_texts(options, rows, [" ".join(text.split("\n")) for text in translations])


def encode_prompts(
    options: GenerateOptions, writer: "TextGenerator", rows: list[Fields], column: str | None
) -> tuple[list[list[int]], list[int]]:
    """Return the prompts and the maximum number of tokens per answer."""
    from ..generate.text_generator import map_rows

    prompts = map_rows(lambda row: prompt_of(writer, row, column, options.chat), rows)
    return prompts, map_rows(
        lambda prompt: writer.max_new_tokens(prompt, options.max_new_tokens, DEFAULT_NEW_TOKENS),
        prompts,
    )


def generate_rows(
    options: GenerateOptions,
    writer: "TextGenerator",
    prompts: list[list[int]],
    limits: list[int],
    sampling: "Sampling",
) -> list[list["Generation"]]:
    from ..runs.logs.progress import CountProgressLine

    with CountProgressLine("answered") as progress:
        if options.num_beams:
            return writer.beam_search(
                prompts,
                num_beams=options.num_beams,
                length_penalty=options.length_penalty,
                max_new_tokens=limits,
                num_return=options.num_return,
                batch_size=options.batch_size,
                progress=progress,
            )
        draft = None
        if options.draft_model:
            from ..inference.open_model import open_model

            draft = open_model(options.draft_model, device=options.device).model
        return writer.generate(
            prompts,
            max_new_tokens=limits,
            sampling=sampling,
            stop_strings=stops(options),
            samples=options.num_samples,
            draft_model=draft,
            batch_size=options.batch_size,
            progress=progress,
        )


def sampling(options: GenerateOptions) -> "Sampling":
    """Return the sampling options; setting any of them enables sampling."""
    from ..generate.sampling import FIELDS, sampling_from

    fields = {name: getattr(options, name) for name in FIELDS}
    if options.num_samples > 1 and options.temperature is None:
        fields["temperature"] = 1.0
    return sampling_from(fields)


def stops(options: GenerateOptions) -> tuple[str, ...]:
    return tuple(stop.replace("\\n", "\n") for stop in options.stop)


def open_generator(options: WriterOptions) -> "TextGenerator":
    with spinner(f"opening {options.name}"):
        from ..generate.text_generator import TextGenerator, use_one_thread_if_small
        from ..inference.open_model import open_model
        from ..nn.kernels.devices import resolve_dtype

        dtype = resolve_dtype(options.precision)
        model = open_model(options.name, dtype=dtype, device=options.device)
        if model.model.device.type == "cpu":
            use_one_thread_if_small(model.model)
        return TextGenerator(model)


def prompt_of(writer: "TextGenerator", row: Fields, column: str | None, chat: bool) -> list[int]:
    if not chat:
        return writer.encode_prompt(row[column or ""])
    return writer.encode_chat(
        row.get("messages", []) if column is None else [{"role": "user", "content": row[column]}]
    )


# Inputs


def text_column(options: WriterOptions, rows: list[Fields]) -> str:
    from ..data.reading.column_names import check_columns_exist, find_column, require_column

    if len(options.columns) > 1:
        raise ValueError(f"--columns {' '.join(options.columns)}: give one column")
    check_columns_exist(rows[0], options.columns)
    only = next(iter(rows[0])) if len(rows[0]) == 1 else None
    column = require_column(
        rows[0],
        next(iter(options.columns), only) or find_column(rows[0], TEXT),
        "text",
        "--columns",
    )
    wrong = next((i for i, row in enumerate(rows, 1) if not isinstance(row.get(column), str)), None)
    if wrong is not None:
        raise ValueError(f"row {wrong} has no text in {column!r}")
    return column


def generation_fields(options: GenerateOptions, answer: "Generation") -> Fields:
    fields: Fields = {"answer": answer.text, "ended": answer.tokens.finished}
    if options.num_beams:
        fields["score"] = answer.tokens.score
    if options.logprobs:
        fields |= {"tokens": answer.tokens.tokens, "logprobs": answer.tokens.logprobs}
    return fields


def escape_newlines(text: str) -> str:
    """Escape line breaks, so that each answer takes one line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def output_texts(options: WriterOptions, rows: list[Fields], lines: list[str]) -> int:
    if not options.output:
        print_result(options.json, rows, lambda width: "\n".join(lines))
        return 0
    if Path(options.output).suffix.lower() in TABLE_SUFFIXES:
        write_output_rows(options.output, rows)
    else:
        Path(options.output).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return report_written(len(rows), options.output)
