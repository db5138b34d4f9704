"""Does retrieval help to fill names and numbers? REALM in small (examples/realm.py) on WikiText-2,
beside no retrieval and random documents.

    WEFT_DATA=… python -m benchmarks.realm [--steps 100] [--seeds 3] [--receipt FILE] [--quick]

The corpus is that of the first articles, cut into passages; every twentieth passage is held out,
neither read nor retrieved. All models of a seed start from the same weights: a reader that filled
all names and numbers of a passage joined to the next one of its article or to its own pieces in any
order, and a retriever that told the next passage from others (in the place of BERT and of the
inverse cloze task, arXiv:2002.08909, section 3.4). Then each masks one span a passage: with the
passages it retrieves, with random ones, or with none, that one also for as many counted FLOPs as
retrieval costs. Reported: -log p(y | x) on held-out passages in nats per piece, and the share of
retrieved passages from the same article. The last line is JSON.
"""

import argparse
import copy
import gzip
import json
import os
import random
import statistics
import time
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

import weft
from weft import recipe as R
from weft.data.tokenizing.train_tokenizer import fit_tokenizer
from weft.support.user_code import load_code

from . import command, receipt

LENGTH = 40
DOCUMENTS = 3
BATCH = 12
REFRESH = 50
RATE = 2e-3
MUON_RATE = 0.01
WAYS = ("retrieved", "random", "none")


class Setting(NamedTuple):
    """Sizes of a run of this benchmark."""

    articles: int = 40
    vocabulary: int = 2000
    depth: int = 2
    width: int = 64
    start_steps: int = 400
    steps: int = 100
    held_out: int = 180
    log_every: int = 50


QUICK = Setting(20, 300, 1, 16, 4, 2, 8, 1)


class World(NamedTuple):
    """What all seeds share."""

    example: Any  # the module of examples/realm.py
    corpus: list[Any]
    held_out: list[Any]
    spec: weft.Spec
    special: Any


def build_world(setting: Setting) -> World:
    load_code(["examples/realm.py"])
    example = import_module("weft.support.user_code.realm")
    path = Path(os.environ["WEFT_DATA"]) / "wikitext-2" / "wiki.train.tokens.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    starts = [i for i, line in enumerate(lines) if line.count("=") == 2 and line[:3] == " = "]
    lines = lines[: [*starts, len(lines)][min(setting.articles, len(starts))]]
    tokenizer = fit_tokenizer(R.WordPiece(vocab_size=setting.vocabulary), lambda: lines)
    passages = list(example.read_passages(lines, tokenizer, LENGTH))
    special = tokenizer.special
    return World(
        example,
        [p for i, p in enumerate(passages) if i % 20],
        passages[::20][: setting.held_out],
        encoder_spec(setting, tokenizer.size),
        example.SpecialTokens(special["bos"], special["eos"], special["mask"], special["pad"]),
    )


def encoder_spec(setting: Setting, vocabulary: int) -> weft.Spec:
    """Pre-norm, since a small post-norm encoder took far longer to read its second text."""
    norm = weft.LayerNorm()
    width = setting.width
    block = weft.Block(
        attention=weft.pre_norm(norm, weft.Attention(heads=max(1, width // 32))),
        feedforward=weft.pre_norm(norm, weft.MLP(hidden=4 * width, activation="gelu")),
    )
    return weft.Spec(
        width=width,
        source=weft.Tokens(
            vocab_size=vocabulary,
            positions=weft.SinusoidalPositions(),
            token_types=2,
            embedding_scale=width**0.5,
        ),
        encoder=weft.Stack(blocks=(block,) * setting.depth, norm=norm),
        head=weft.LMHead(bias="trained"),
        init=weft.XavierInit(),
    )


def mask_any(world: World, passage: Any, number: int | None, rng: random.Random) -> Any:
    return world.example.mask_span(passage, rng.choice(passage.spans), world.special, number)


def mask_all(world: World, passage: Any) -> Any:
    """Every salient span of a passage, which gives more to learn a pass than one."""
    places = sorted({i for start, end in passage.spans for i in range(start, end)})
    ids = [world.special.mask if i in set(places) else t for i, t in enumerate(passage.ids)]
    framed = [world.special.cls, *ids, world.special.sep]
    labels = [passage.ids[i] for i in places]
    return world.example.Query(framed, [i + 1 for i in places], labels, None)


def start_model(world: World, setting: Setting, seed: int) -> Any:
    """A reader that has seen pairs of neighbours, and a retriever that has told them apart."""
    model = world.example.Realm(world.spec, world.special, seed=seed)
    rng = random.Random(seed)
    optimisers = build_optimisers(model)
    pairs = [
        (one, other)
        for one, other in zip(world.corpus, world.corpus[1:], strict=False)
        if one.article == other.article
    ]
    for step in range(setting.start_steps):
        some = rng.sample(pairs, BATCH)
        queries = [mask_all(world, one) for one, _ in some]
        beside = [
            other.ids if rng.random() < 0.5 else shuffled(one.ids, rng) for one, other in some
        ]
        filled = model.log_likelihood(queries, [[ids] for ids in beside]).sum()
        query_BD = model.vectors([query.ids for query in queries])
        document_BD = model.vectors([model.framed(other.ids) for _, other in some])
        scores_BB = query_BD @ document_BD.T
        loss = F.cross_entropy(scores_BB, torch.arange(BATCH))
        loss = loss - filled / sum(len(query.labels) for query in queries)
        take_step(optimisers, loss)
        if step % setting.log_every == 0:
            print(f"  start {step}/{setting.start_steps} loss {loss.item():.3f}", flush=True)
    return model


def shuffled(ids: list[int], rng: random.Random) -> list[int]:
    """The pieces of the whole passage in any order: a document that has the answer, but not its
    place.
    """
    return rng.sample(ids, len(ids))


def build_optimisers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of blocks, Adam for the rest, as Weft's recipes of small encoders have
    it.
    """
    parameters = dict(model.named_parameters())
    matrices = [p for name, p in parameters.items() if ".blocks." in name and p.dim() == 2]
    chosen = set(map(id, matrices))
    rest = [p for p in parameters.values() if id(p) not in chosen]
    muon = torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.0)
    return [muon, torch.optim.Adam(rest, RATE)]


def take_step(optimisers: list[torch.optim.Optimizer], loss: torch.Tensor) -> None:
    loss.backward()
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad()


def documents_of(
    world: World, way: str, index: Any, queries: list[Any], rng: random.Random
) -> list[list[list[int]]]:
    """The pieces of what each query reads beside itself; the last is the null document."""
    if way == "none":
        return [[[]] for _ in queries]
    if way == "retrieved":
        numbers = index.nearest(queries, DOCUMENTS)
    else:
        numbers = [random_numbers(len(world.corpus), query.number, rng) for query in queries]
    return [[*(world.corpus[i].ids for i in some), []] for some in numbers]


def random_numbers(count: int, excluded: int | None, rng: random.Random) -> list[int]:
    drawn = rng.sample(range(count), DOCUMENTS + 1)
    return [i for i in drawn if i != excluded][:DOCUMENTS]


def train(world: World, model: Any, way: str, steps: int, seed: int) -> None:
    rng = random.Random(seed + 1000)
    optimisers = build_optimisers(model)
    index = world.example.Index(model, world.corpus) if way == "retrieved" else None
    for step in range(steps):
        if index is not None and step and step % REFRESH == 0:
            index.refresh()
        numbers = rng.sample(range(len(world.corpus)), BATCH)
        queries = [mask_any(world, world.corpus[i], i, rng) for i in numbers]
        documents = documents_of(world, way, index, queries, rng)
        if way == "none":  # p(z | x) is 1
            likely = model.log_likelihood(queries, documents)
        else:
            likely = model.log_marginal(queries, documents)
        take_step(optimisers, -likely.sum() / sum(len(query.labels) for query in queries))


@torch.no_grad()
def evaluate(world: World, model: Any, way: str) -> dict[str, float]:
    rng = random.Random(0)
    index = None
    queries = [mask_any(world, passage, None, rng) for passage in world.held_out]
    scores: dict[str, float] = {}
    if way == "retrieved":
        index = world.example.Index(model, world.corpus)
        pairs = zip(world.held_out, index.nearest(queries, DOCUMENTS), strict=True)
        hits = [world.corpus[i].article == p.article for p, some in pairs for i in some]
        scores["same_article"] = round(statistics.mean(hits), 4)
    total = 0.0
    for i in range(0, len(queries), BATCH):
        some = queries[i : i + BATCH]
        documents = documents_of(world, way, index, some, rng)
        total -= float(model.log_marginal(some, documents).sum())
    return scores | {"loss": round(total / sum(len(query.labels) for query in queries), 4)}


def flops_a_step(world: World, way: str) -> float:
    """Forward and backward; of the index a forward pass of the corpus every `REFRESH` steps."""
    spec = world.spec
    row = LENGTH + 2
    alone = 3.0 * spec.flops(BATCH, row)
    if way == "none":
        return alone
    joined = 3.0 * spec.flops(BATCH * DOCUMENTS, row + LENGTH + 1)
    vectors = weft.spec.replace(spec, head=weft.NoHead())
    prior = 3.0 * vectors.flops(BATCH * (DOCUMENTS + 1), row)
    index = vectors.flops(len(world.corpus), row) / REFRESH if way == "retrieved" else 0.0
    return alone + joined + prior + index


def run_seed(world: World, setting: Setting, seed: int) -> dict[str, Any]:
    start = start_model(world, setting, seed)
    row: dict[str, Any] = {"start": {way: evaluate(world, start, way) for way in WAYS}}
    longer = round(setting.steps * flops_a_step(world, "retrieved") / flops_a_step(world, "none"))
    for name, way, steps in (
        ("retrieved", "retrieved", setting.steps),
        ("random", "random", setting.steps),
        ("none, equal steps", "none", setting.steps),
        ("none, equal FLOPs", "none", longer),
    ):
        model = copy.deepcopy(start)
        begin = time.perf_counter()
        train(world, model, way, steps, seed)
        seconds = round(time.perf_counter() - begin, 1)
        row[name] = {"steps": steps, "seconds": seconds} | evaluate(world, model, way)
        print(f"seed {seed} {name}: {row[name]}", flush=True)
    return row


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=Setting().steps)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--receipt", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="a few steps of a very small model")
    options = parser.parse_args(arguments)
    start_time = time.perf_counter()
    setting = QUICK if options.quick else Setting()._replace(steps=options.steps)
    seeds = 1 if options.quick else options.seeds
    world = build_world(setting)
    rows = []
    for seed in range(seeds):
        rows.append(run_seed(world, setting, seed))
        spent = time.perf_counter() - start_time
        left = spent / (seed + 1) * (seeds - seed - 1)
        print(f"{spent:.0f} s, about {left:.0f} s left", flush=True)
    names = [name for name in rows[0] if name != "start"]
    losses = {name: [row[name]["loss"] for row in rows] for name in names}
    result = {
        "passages": len(world.corpus),
        "held_out": len(world.held_out),
        "parameters": world.spec.parameter_count(),
        "mean": {name: round(statistics.mean(values), 4) for name, values in losses.items()},
        "stdev": {
            name: round(statistics.stdev(values), 4)
            for name, values in losses.items()
            if len(values) > 1
        },
        "runs": rows,
    }
    if options.receipt:
        receipt.write(options.receipt, result, time.perf_counter() - start_time, seeds - 1)
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    command.run(main)
