"""Small generated data in the formats of the shipped recipes, and the recipes shortened to a few
steps.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

import weft
from weft import recipe as R
from weft.evaluation import arithmetic

from . import assistant_data

WORDS = (
    "the",
    "a",
    "of",
    "red",
    "small",
    "old",
    "boat",
    "tree",
    "house",
    "river",
    "sings",
    "runs",
    "sees",
    "under",
    "over",
    "with",
    "and",
)


def sentence(chance: Random, least: int = 4, most: int = 12) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(least, most)))


def lines(
    count: int, line: Callable[[Random, int], str], end: str = "\n"
) -> Callable[[Random], str]:
    return lambda chance: "".join(line(chance, i) + end for i in range(count))


def article(chance: Random, i: int) -> str:
    text = " . ".join(sentence(chance).capitalize() for _ in range(30))
    return f" \n = Title {i} = \n \n {text} . \n \n = = Part = = \n \n {text} . "


def squad(chance: Random) -> str:
    def question(n: int, context: str) -> dict[str, Any]:
        word = chance.choice(context.split())
        return {
            "id": f"q{n}",
            "question": sentence(chance),
            "answers": [{"text": word, "answer_start": context.index(word)}],
        }

    contexts = [sentence(chance, 20, 40) for _ in range(16)]
    return json.dumps(
        {
            "data": [
                {"title": "t", "paragraphs": [{"context": c, "qas": [question(i, c)]}]}
                for i, c in enumerate(contexts)
            ]
        }
    )


def tagged(chance: Random, i: int) -> str:
    tags = ["O", "B-LOC", "I-LOC", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER"]
    return "".join(
        f"{word} {tags[(i + n) % len(tags)]} 0\n" for n, word in enumerate(sentence(chance).split())
    )


JUDGED = ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")
MAKERS: dict[str, Callable[[Random], str]] = {
    "tinyshakespeare/input.txt.gz": lambda c: (
        "".join(map(chr, range(32, 96))) + lines(300, lambda c, i: sentence(c).upper())(c)
    ),
    "wikitext-2/wiki.train.tokens.gz": lines(12, article),
    "wikitext-2/wiki.valid.tokens.gz": lines(3, article),
    "glue/SST-2/train.tsv.gz": lambda c: (
        "label\tsentence\r\n" + lines(40, lambda c, i: f"{i % 2}\t{sentence(c)}", "\r\n")(c)
    ),
    "glue/SST-2/dev.tsv.gz": lambda c: (
        "label\tcontent\n" + lines(9, lambda c, i: f"{i % 2}\t{sentence(c)}")(c)
    ),
    "sick/SICK.txt.gz": lambda c: (
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        + lines(60, lambda c, i: f"{i}\t{sentence(c)}\t{sentence(c)}\t{i % 5}.5\t{JUDGED[i % 3]}")(
            c
        )
    ),
    "squad/squad-v1.1-dev.json.gz": squad,
    **{
        f"glue/STS-B/sts-{part}.csv.gz": lines(
            count,
            lambda c, i: f'a\tb\t2012\t{i:04}\t{i % 5}.25\t{sentence(c)} "\t{sentence(c)}\tmore',
        )
        for part, count in (("train", 40), ("dev", 9))
    },
    **{
        f"multi30k/{part}.{side}.gz": lines(count, lambda c, i: sentence(c))
        for part, count in (("train", 60), ("val", 9))
        for side in ("en", "de")
    },
    **{
        f"arithmetic/{part}.jsonl.gz": lambda c: "".join(
            json.dumps({"text": text}) + "\n" for text in arithmetic.documents(40)
        )
        for part in ("train", "valid")
    },
    **{
        f"assistant/{part}.jsonl.gz": lines(
            count, lambda c, i: json.dumps(assistant_data.conversation(assistant_data.question(c)))
        )
        for part, count in (("train", 40), ("valid", 9))
    },
    **{
        f"assistant/{part}.jsonl.gz": lines(
            count,
            lambda c, i: json.dumps(assistant_data.preference(assistant_data.question(c), c)),
        )
        for part, count in (("preferences", 40), ("preferences_valid", 9))
    },
    **{
        f"conll2003/{part}.txt.gz": lines(count, tagged)
        for part, count in (("train", 30), ("valid", 9))
    },
}


def make_boxes(table: Path, folder: Path) -> None:
    """A table in COCO's layout, and its images: a rectangle of a shade per class."""
    folder.mkdir(parents=True, exist_ok=True)
    images = []
    annotations = []
    for number in range(1, 11):
        image = Image.new("RGB", (64, 48), (10, 20, 30))
        image.paste((20 * number, 200, 90), (4, 6, 24, 30))
        image.save(folder / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png"})
        annotations.append({"image_id": number, "category_id": number, "bbox": [4, 6, 20, 24]})
    categories = [{"id": number, "name": str(number - 1)} for number in range(1, 11)]
    table.write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )


def make_data(home: Path, data: R.Data) -> None:
    if isinstance(data.rows, R.ImagesWithBoxes):
        for part in data.parts():
            make_boxes(*(home / path for path in part.source.paths))
        return
    if isinstance(data.tokenizer, R.TokenizerFile):
        Path(data.tokenizer.path).parent.mkdir(parents=True, exist_ok=True)
        Path(data.tokenizer.path).write_text(arithmetic.tokenizer())
    for path in {path for part in data.parts() for path in part.source.paths}:
        if path in MAKERS:
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_bytes(gzip.compress(MAKERS[path](Random(path)).encode()))
        elif path.endswith((".npz", ".gz")):
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            write_arrays(home / path)
        elif isinstance(data.rows, R.LabelledImages):
            for label in range(10):
                (home / path / str(label)).mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (32, 32), (20 * label, 100, 50)).save(
                    home / path / str(label) / "a.png"
                )


def write_arrays(path: Path) -> None:
    """Ten images and their classes, as CIFAR-10's npz or one of Fashion-MNIST's idx files holds
    them.
    """
    labels = np.arange(10, dtype=np.uint8)
    if path.suffix == ".npz":
        pixels = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), np.uint8)
        np.savez(path, images=pixels, labels=labels)
        return
    grey = np.random.default_rng(0).integers(0, 256, (10, 28, 28), np.uint8)
    array = grey if "images" in path.name else labels
    sides = np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(bytes((0, 0, 8, array.ndim)) + sides + array.tobytes()))


def shallow(stack: Any) -> Any:
    if isinstance(stack, weft.Pyramid):
        return replace(stack, stages=tuple(stage[:1] for stage in stack.stages))
    return None if stack is None else replace(stack, blocks=stack.blocks[:1])


def small(recipe: R.Recipe) -> R.Recipe:
    """One block, three steps of few rows; all else stays."""

    def cut(model: Any) -> Any:
        head = (
            replace(model.head, stack=shallow(model.head.stack))
            if isinstance(model.head, weft.PixelDecoder)
            else model.head
        )
        return replace(
            model, encoder=shallow(model.encoder), decoder=shallow(model.decoder), head=head
        )

    objective = recipe.task
    if isinstance(objective, R.ReplacedTokenDetection):
        objective = replace(objective, generator=cut(objective.generator))
    batch: Any = recipe.batch
    batch = (
        replace(batch, tokens=max(256, batch.length))
        if isinstance(batch, R.TokenBudget)
        else replace(batch, size=4)
    )
    return replace(
        recipe, model=cut(recipe.model), task=objective, batch=batch, steps=3, eval_every=None
    )


def make_clone(home: Path) -> None:
    """What recipes/first_run.py reads of a clone."""
    for name in ("src/weft/a.py", "src/weft/demo/shakespeare.txt.gz", "docs/a.md", "README.md"):
        text = lines(60, lambda c, i: sentence(c))(Random(name)).encode()
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
