"""Text-to-text fine-tuning of an encoder-decoder: which columns are source and target, how a labelled row is written as text (T5,
arXiv:1910.10683, section 2.4 and appendix D), and which tokens the checkpoint puts around a text."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import recipe as R
from .. import spec as S
from ..data.files import expand
from ..data.formats.sniff import detect_format, formats_by_suffix
from ..data.quarantine import allowed_bad_rows
from ..data.reading.column_names import (
    SOURCE_COLUMNS,
    TARGET_COLUMNS,
    check_columns_exist,
    find_column,
)
from ..data.reading.columns import MAX_CLASSES, column_values, looks_like_text
from ..data.reading.rows import Fields, load_source
from ..data.tokenizer import Tokenizer
from ..synonyms import suggest
from .detect import (
    DetectedData,
    align_columns,
    build_source,
    detect_classes,
    detect_data,
    format_labels,
    usable_rows,
)

if TYPE_CHECKING:
    from .plan import TuneOptions

TASK = "text2text"
SOURCE_TARGET_COLUMNS = (
    ("source", "target"),
    ("input", "output"),
    ("document", "summary"),
    ("article", "highlights"),
    ("text", "summary"),
)


def is_text_to_text_model(spec: S.Spec) -> bool:
    """Return whether a model is an encoder-decoder with a language modelling head."""
    return spec.encoder is not None and spec.decoder is not None and isinstance(spec.head, S.LMHead)


def detect_text_to_text(options: "TuneOptions", spec: S.Spec) -> DetectedData | None:
    """Return the data as text-to-text if --task says so, or if an encoder-decoder gets texts or classes without --task; else None."""
    if options.task not in (None, TASK) or not is_text_to_text_model(spec):
        if options.task == TASK:
            raise ValueError(
                f"--task {TASK} needs an encoder-decoder with a language modelling head, such as T5 or BART; "
                f"{options.checkpoint} is none"
            )
        if options.source_prefix or options.label_texts:
            raise ValueError(f"--source-prefix and --label-texts are for --task {TASK}")
        return None
    if (detected := detect_pairs(options)) is not None:
        return detected
    detected = detect_data(
        options.data,
        options.valid,
        None,
        options.column_names,
        options.columns,
        options.label,
        options.max_bad_row_fraction,
    )
    row = detected.row
    if isinstance(row, R.LabelledTexts) and row.labels is not None:
        texts = [name for name in (row.text, row.second_text) if name]
        return with_summary(
            detected, build_template(options, texts, row.label, row.labels, detected.rows[0])
        )
    if options.task == TASK:
        raise ValueError(
            f"{options.data[0]}: which columns are the source and the target? Say --columns SOURCE [SOURCE …] TARGET"
        )
    return None


def detect_pairs(options: "TuneOptions") -> DetectedData | None:
    """Detect two aligned files, or a table with a column of source text and one of target text."""
    paths, dev = expand(options.data), expand(options.valid) if options.valid else []
    if len(paths) == 2 and not any(map(formats_by_suffix, paths)):
        train, valid_source = (
            R.Source(paths=tuple(paths), format="parallel", column_names=("source", "target"))
            if paths
            else None
            for paths in (paths, dev)
        )
        assert train is not None
        return load_pairs(options, train, valid_source, ["source", "target"])
    kind = detect_format(paths[0])
    if kind in ("squad", "conll"):
        return None
    requested_columns = [*options.columns, *([options.label] if options.label else [])]
    train = build_source(paths, kind, options.column_names, requested_columns)
    rows = load_source(train)[0]
    chosen = source_target_columns(options, [item.fields for item in rows]) if rows else None
    if chosen is None:
        return None
    check_columns_exist(rows[0].fields, requested_columns)
    return load_pairs(
        options, train, align_columns(train, rows, dev, requested_columns) if dev else None, chosen
    )


def load_pairs(
    options: "TuneOptions", train: R.Source, dev: R.Source | None, chosen: list[str]
) -> DetectedData:
    """Load all rows of a source whose columns are known; targets that repeat are labels."""
    *texts, target = chosen
    (rows, bad), (other, worse) = load_source(train), load_source(dev) if dev else ([], [])
    cells = [
        cell for item in (*rows, *other) if (cell := item.fields.get(target)) not in (None, "")
    ]
    free = looks_like_text(cells) or len(set(map(str, cells))) > min(MAX_CLASSES, len(cells) // 2)
    labels = (
        None
        if free
        else detect_classes(
            cells, target, TASK, allowed_bad_rows(len(rows), options.max_bad_row_fraction)
        )
    )
    row = build_template(options, texts, target, labels, rows[0].fields if rows else {})
    train_rows, note = usable_rows(rows, bad, row, train, options.max_bad_row_fraction, "")
    valid, more = (
        usable_rows(other, worse, row, dev, options.max_bad_row_fraction, "dev ")
        if dev
        else ([], ())
    )
    return with_summary(
        DetectedData(TASK, train, dev, row, train_rows, valid, "", (*note, *more)), row
    )


def source_target_columns(options: "TuneOptions", rows: list[Fields]) -> list[str] | None:
    """Return the columns of the source, then the target."""
    if options.columns:
        requested_columns = [*options.columns, *([options.label] if options.label else [])]
        return (
            requested_columns
            if len(requested_columns) > 1
            and (
                options.task == TASK or looks_like_text(column_values(rows, requested_columns[-1]))
            )
            else None
        )
    for source, target in (
        *SOURCE_TARGET_COLUMNS,
        *((source, target) for source in SOURCE_COLUMNS for target in TARGET_COLUMNS),
    ):
        both = find_column(rows[0], (source,)), find_column(rows[0], (target,))
        if both[0] and both[1]:
            return [both[0], both[1]]
    names = list(rows[0])
    return (
        names
        if len(names) == 2 and all(looks_like_text(column_values(rows, name)) for name in names)
        else None
    )


def build_template(
    options: "TuneOptions",
    texts: Sequence[str],
    target: str,
    labels: tuple[str, ...] | None,
    first: Fields,
) -> R.TemplatedPairs:
    """Return the template: the prefix, then the text; several texts each follow the name of their column, as in T5."""
    body = (
        f"{{{texts[0]}}}" if len(texts) == 1 else " ".join(f"{name}: {{{name}}}" for name in texts)
    )
    schema = R.TemplatedPairs(
        template=options.source_prefix + body,
        target=target,
        labels=labels,
        label_texts=options.label_texts or None,
    )
    wrong = next((name for name in schema.template_columns if name not in first), None)
    if wrong is not None:
        raise ValueError(
            f"--source-prefix {options.source_prefix!r}: there is no column {wrong!r}; {suggest(wrong, list(map(str, first)))}"
        )
    return schema


def with_summary(detected: DetectedData, row: R.TemplatedPairs) -> DetectedData:
    form = detected.train.format
    what = (
        f"{len(row.labels)} labels in {row.target!r} ({format_labels(row.targets)})"
        if row.labels
        else f"target text in {row.target!r}"
    )
    line = f"{detected.train.paths[0]}: {len(detected.rows):,} rows ({form}), source {row.template!r}, {what}: {TASK}"
    return detected._replace(task=TASK, row=row, summary=line)


# The model


def with_decoder_start(
    spec: S.Spec, style: Any, tokenizer: Tokenizer, before: R.Task | None
) -> S.Spec:
    """Return the spec with the start token of its decoder, so that generation starts from it too."""
    if spec.special_tokens.decoder_start is not None:
        return spec
    mark = "eos" if style == "bart" else before.decoder_start() if before else "pad"
    return replace(
        spec, special_tokens=replace(spec.special_tokens, decoder_start=tokenizer.special.get(mark))
    )
