"""Sections of docs/results.md on the studies of the lectures: what each choice did, at laptop size."""

from collections.abc import Iterator
from typing import Any

Lines = Iterator[str]
Result = dict[str, Any]


def table(*rows: tuple[Any, ...]) -> Lines:
    head, *body = ([str(cell) for cell in row] for row in rows)
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in body)


def deep(found: Result) -> Lines:
    yield (
        f"Masked bytes of WikiText-2, {found['steps']} steps, three seeds, the same learning rate for all: the loss on held-out text, and the runs that "
        f"learned no more than how often each byte occurs ({found['entropy']:.2f} nats)."
    )
    yield ""
    depths = list(next(iter(found["kinds"].values())))
    yield from table(
        ("", *(f"{depth} blocks" for depth in depths), *(f"failed of {depth}" for depth in depths)),
        *(
            (
                kind,
                *(f"{rows[d]['mean']:.3f} ± {rows[d]['stdev']:.3f}" for d in depths),
                *(f"{rows[d]['failed']} of {len(rows[d]['runs'])}" for d in depths),
            )
            for kind, rows in found["kinds"].items()
        ),
    )


def ladder(found: Result) -> Lines:
    fit = found["fit"]["value, low, high"]
    bytes_read = sorted({point["bytes"] for point in found["points"]})

    def interval(name: str) -> str:
        value, low, high = fit[name]
        return f"{value:.2f} ({low:.2f} to {high:.2f})"

    yield (
        "Five GPTs on the bytes of WikiText-2, nats per byte of held-out text where a branch of the constant learning rate has decayed. "
        f"L = E + A / N^a + B / D^b: a = {interval('a')}, b = {interval('b')}; the best loss at each compute falls as C^-g, "
        f"-g = {interval('minus_g')}; 90 % intervals of the bootstrap; the largest error of the fit is {found['fit']['largest_error']:.2f} "
        "nats. More data helps; an effect of size is not resolved at this length, since the loss does not fall steadily with it: the ladder shows "
        "the method, not the exponents of large models."
    )
    yield ""
    sizes = sorted({point["parameters"] for point in found["points"]})
    loss = {(p["parameters"], p["bytes"]): p["loss"] for p in found["points"]}
    yield from table(
        ("parameters", *(f"{n:,} bytes" for n in bytes_read)),
        *((f"{size:,}", *(f"{loss[size, n]:.3f}" for n in bytes_read)) for size in sizes),
    )


def recurrent(found: Result) -> Lines:
    times = found["seconds_a_step"]
    lengths = list(times["recurrent"])
    yield (
        "A recurrent encoder-decoder with Bahdanau attention (examples/bahdanau.py) beside a Transformer: processor seconds per step with "
        "the same number of tokens, against the length of the sequences. The recurrent one computes position after position."
    )
    yield ""
    yield from table(
        ("tokens per sequence", *lengths),
        *((name, *(f"{row[n]:.2f} s" for n in lengths)) for name, row in times.items()),
    )
    if "mean_BLEU" in found:
        steps = {f"{run['model']}, {run['budget']}": run["steps"] for run in found["runs"]}
        seeds = len({run["seed"] for run in found["runs"]})
        yield ""
        yield (
            "Lower-cased BLEU of Multi30k's test_2016_flickr, English to German, of small models from scratch, after few steps, "
            f"{seeds} seed{'s' * (seeds > 1)}:"
        )
        yield ""
        yield from table(
            ("model and budget", "steps", "BLEU of each seed", "mean"),
            *(
                (
                    name,
                    f"{steps[name]:,}",
                    ", ".join(
                        f"{run['BLEU (lower-cased)']:.1f}"
                        for run in found["runs"]
                        if f"{run['model']}, {run['budget']}" == name
                    ),
                    f"{mean:.1f}",
                )
                for name, mean in found["mean_BLEU"].items()
            ),
        )
        yield ""
        yield "![What each German piece attends to](results/alignment.svg)"


def mixtures(found: Result) -> Lines:
    yield (
        "A small T5 on three tasks by prefixes, mixed in proportion to the data or in equal shares, beside one model per task with a third of "
        "the steps each (equal FLOPs in total): validation loss per token, one seed. The accuracy on reviews is that of guessing everywhere."
    )
    yield ""
    tasks = list(found["proportional"]["runs"][0])
    rows = {
        "in proportion": found["proportional"]["runs"][0],
        "equal shares": found["fixed"]["runs"][0],
        "alone": {task: found[f"{task} alone"]["runs"][0][task] for task in tasks},
    }
    yield from table(
        ("", *tasks),
        *((name, *(f"{row[task]['loss']:.2f}" for task in tasks)) for name, row in rows.items()),
    )


def auxiliary(found: Result) -> Lines:
    yield (
        f"GPT's auxiliary language modelling loss while fine-tuning ({found['pretraining_steps']} steps of pre-training, "
        f"{found['tuning_steps']} of tuning, three seeds, one learning rate for both): accuracy. So short a run is no verdict on the method."
    )
    yield ""
    yield from table(
        ("", "without", "weight 0.5", "difference"),
        *(
            (
                task,
                f"{row['0']['mean']:.3f} ± {row['0']['stdev']:.3f}",
                f"{row['0.5']['mean']:.3f} ± {row['0.5']['stdev']:.3f}",
                f"{row['0.5']['difference']:+.3f} ± {row['0.5']['standard error']:.3f}",
            )
            for task, row in found["tasks"].items()
        ),
    )


def multilingual(found: Result) -> Lines:
    yield (
        "One small encoder over English, German and a little French, languages drawn by n^exponent: loss per masked token of each language, and "
        "the share of French in what was read. A small exponent helps the small language at the cost of the large one."
    )
    yield ""
    yield from table(
        ("exponent", "English", "German", "French", "share of French"),
        *(
            (
                name,
                *(f"{row['valid'][language]['loss']:.2f}" for language in ("en", "de", "fr")),
                f"{row['shares'].get('fr', 0.0):.1%}",
            )
            for name, row in found["sampling"].items()
        ),
    )
    yield ""
    yield (
        "Questions learned in English, answered in German (XQuAD, F1): no transfer is shown, so little training answers nothing in either language."
    )
    yield ""
    yield from table(
        ("", "English", "German"),
        *(
            (name, *(f"{row[language]['f1']:.1f}" for language in ("en", "de")))
            for name, row in found["transfer"].items()
        ),
    )


def variations(found: Result) -> Lines:
    """Write a table of variations: each measure beside what the paper reports of the same change."""
    measures = [name for name, part in found["base"].items() if isinstance(part, dict)]
    seeds = len(found["base"][measures[0]]["runs"])
    judged = [
        part["agrees"]
        for row in found.values()
        for part in (row[measure] for measure in measures)
        if "agrees" in part
    ]
    yield (
        f"Mean and standard deviation of {seeds} seeds, and whether the row is better or worse than `base`, here and in the paper."
        + (
            f" The direction is the paper's in {sum(judged)} of {len(judged)} cases."
            if judged
            else ""
        )
    )
    yield ""
    yield from table(
        (
            "row",
            "parameters",
            *(f"{m}{title}" for m in measures for title in ("", ": here, paper")),
        ),
        *(
            (
                name,
                f"{row['parameters'] / 1e6:.2f} M",
                *(cell for measure in measures for cell in variation(row[measure])),
            )
            for name, row in found.items()
        ),
    )


def variation(part: dict[str, Any]) -> tuple[str, str]:
    """Return the value of a row, and its direction here and in the paper."""
    spread = "" if part["stdev"] is None else f" ± {part['stdev']:.2f}"
    said = f"{part['here']}, {part.get('paper says', 'no figure')}" if "here" in part else ""
    return f"{part['mean']:.2f}{spread}", said


def retrieved(found: Result) -> Lines:
    yield (
        f"A small masked language model ({found['parameters'] / 1e6:.1f} M parameters) that reads passages it finds by itself (examples/realm.py), "
        f"on {found['passages']:,} passages of WikiText-2: nats per masked piece of {found['held_out']:,} held-out passages, {len(found['runs'])} seeds."
    )
    yield ""
    hits = [row["retrieved"]["same_article"] for row in found["runs"]]
    begin = [row["start"]["retrieved"]["same_article"] for row in found["runs"]]
    yield from table(
        ("passages read", "nats", "steps"),
        *(
            (
                name,
                f"{mean:.3f}" + (f" ± {found['stdev'][name]:.3f}" if found["stdev"] else ""),
                f"{found['runs'][0][name]['steps']:,}",
            )
            for name, mean in found["mean"].items()
        ),
    )
    yield ""
    yield (
        f"Found passages of the same article: {', '.join(f'{hit:.1%}' for hit in hits)}; before training "
        f"{', '.join(f'{hit:.1%}' for hit in begin)}."
    )
