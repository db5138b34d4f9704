"""Sections of docs/results.md on the studies of the lectures: the effect of each choice at laptop
size.
"""

from collections.abc import Iterator
from typing import Any

from weft.support.console import count_of

Lines = Iterator[str]
Result = dict[str, Any]


def table(*rows: tuple[Any, ...]) -> Lines:
    head, *body = ([str(cell) for cell in row] for row in rows)
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in body)


def deep(found: Result) -> Lines:
    yield (
        f"Masked bytes of WikiText-2, {found['steps']} steps, three seeds, the same learning rate "
        "for all: held-out loss, and the number of failed runs, which "
        f"reach only the unigram entropy of the bytes ({found['entropy']:.2f} nats)."
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
        "Five GPTs on the bytes of WikiText-2, nats per held-out byte. Each point is a decay "
        "branch of a run with a constant learning rate. "
        f"L = E + A / N^a + B / D^b: a = {interval('a')}, b = {interval('b')}; the best loss for a "
        "given compute scales as C^-g, "
        f"-g = {interval('minus_g')}; 90 % bootstrap intervals; the largest error of the fit is "
        f"{found['fit']['largest_error']:.2f} "
        "nats. More data helps. The effect of the model size is unresolved at this budget, since "
        "the loss is not monotonic in the size: the "
        "table shows the method, not the exponents of large models."
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
        "A recurrent encoder-decoder with Bahdanau attention (examples/bahdanau.py) compared with "
        "a Transformer: CPU seconds per step with "
        "the same number of tokens, by sequence length. The recurrent model processes one position "
        "after another."
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
            "Lowercased BLEU of Multi30k's test_2016_flickr, English to German, of small models "
            "trained from scratch for a few steps, "
            f"{count_of(seeds, 'seed')}:"
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
        yield "![Attention of each German piece](results/alignment.svg)"


def mixtures(found: Result) -> Lines:
    yield (
        "A small T5 on three tasks with prefixes, mixed in proportion to the data or equally, "
        "compared with one model per task with a third of "
        "the steps each (equal FLOPs in total): validation loss per token, one seed. The accuracy "
        "on reviews is at chance level in all cases."
    )
    yield ""
    tasks = list(found["proportional"]["runs"][0])
    rows = {
        "proportional": found["proportional"]["runs"][0],
        "equal": found["fixed"]["runs"][0],
        "one model per task": {task: found[f"{task} alone"]["runs"][0][task] for task in tasks},
    }
    yield from table(
        ("", *tasks),
        *((name, *(f"{row[task]['loss']:.2f}" for task in tasks)) for name, row in rows.items()),
    )


def auxiliary(found: Result) -> Lines:
    yield (
        f"GPT's auxiliary language modelling loss during fine-tuning ({found['pretraining_steps']} "
        "steps of pre-training, "
        f"{found['tuning_steps']} steps of fine-tuning, three seeds, one learning rate for both): "
        "accuracy. These runs are too short to judge the method."
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
        "A small encoder on English, German and a small amount of French, with languages sampled "
        "in proportion to n^exponent: loss per masked token "
        "of each language, and the share of French in the training data. A small exponent improves "
        "the smallest language and worsens the largest."
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
        "Question answering fine-tuned in English and evaluated in German (XQuAD, F1). The budget "
        "is too small for either language, so the table shows "
        "no transfer."
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
    """Yield a table of ablations: each measure, and the direction of its change here and in the
    paper.
    """
    measures = [name for name, part in found["base"].items() if isinstance(part, dict)]
    seeds = len(found["base"][measures[0]]["runs"])
    judged = [
        part["agrees"]
        for row in found.values()
        for part in (row[measure] for measure in measures)
        if "agrees" in part
    ]
    yield (
        f"Mean and standard deviation of {seeds} seeds, and whether the row is better or worse "
        "than `base`, here and in the paper."
        + (
            f" The direction agrees with the paper in {sum(judged)} of {len(judged)} cases."
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
    """Return the value of a row and its direction here and in the paper."""
    spread = "" if part["stdev"] is None else f" ± {part['stdev']:.2f}"
    said = f"{part['here']}, {part.get('paper says', 'no figure')}" if "here" in part else ""
    return f"{part['mean']:.2f}{spread}", said


def retrieved(found: Result) -> Lines:
    yield (
        f"A small masked language model ({found['parameters'] / 1e6:.1f} M parameters) that reads "
        "retrieved passages (examples/realm.py), "
        f"on {found['passages']:,} passages of WikiText-2: nats per masked piece of "
        f"{found['held_out']:,} held-out passages, {len(found['runs'])} seeds."
    )
    yield ""
    hits = [row["retrieved"]["same_article"] for row in found["runs"]]
    begin = [row["start"]["retrieved"]["same_article"] for row in found["runs"]]
    yield from table(
        ("passages", "nats", "steps"),
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
        "Share of retrieved passages from the same article: "
        f"{', '.join(f'{hit:.1%}' for hit in hits)}; before training "
        f"{', '.join(f'{hit:.1%}' for hit in begin)}."
    )
