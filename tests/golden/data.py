"""Small generated files under the relative paths that the recipes read. Nothing here knows Weft: a
renaming leaves the data as it is.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

LETTERS = "etaoinshrdlu"
RANDOM = Random("words")
WORDS = sorted({"".join(RANDOM.choices(LETTERS, k=RANDOM.randint(1, 6))) for _ in range(400)})
TAGS = ("O", "B-LOC", "I-LOC", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER")
JUDGEMENTS = ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")


def words(random: Random, shortest: int = 4, longest: int = 12) -> list[str]:
    """Words with a skewed distribution, so that there is something to learn."""
    return [
        WORDS[int(len(WORDS) * random.random() ** 3)]
        for _ in range(random.randint(shortest, longest))
    ]


def sentence(random: Random, shortest: int = 4, longest: int = 12) -> str:
    return " ".join(words(random, shortest, longest))


def lines(
    count: int, line: Callable[[Random, int], str], header: str = ""
) -> Callable[[Random], str]:
    return lambda random: header + "".join(line(random, i) + "\n" for i in range(count))


def article(random: Random, i: int) -> str:
    text = " . ".join(sentence(random).capitalize() for _ in range(30))
    return f" \n = Title {i} = \n \n {text} . \n \n = = Part = = \n \n {text} . "


def questions(random: Random) -> str:
    articles = []
    for i in range(16):
        context = sentence(random, 20, 40)
        answer = random.choice(context.split())
        question = {
            "id": f"q{i}",
            "question": sentence(random),
            "answers": [{"text": answer, "answer_start": context.index(answer)}],
        }
        articles.append({"title": "t", "paragraphs": [{"context": context, "qas": [question]}]})
    return json.dumps({"data": articles})


def tagged_sentence(random: Random, i: int) -> str:
    return "".join(
        f"{word} {TAGS[(i + n) % len(TAGS)]} 0\n" for n, word in enumerate(words(random))
    )


def sums(random: Random, i: int) -> str:
    pairs = [(random.randrange(100), random.randrange(100)) for _ in range(random.randint(1, 9))]
    return json.dumps(
        {"text": "\n\n".join(f"Q: What is {a} plus {b}?\nA: {a + b}" for a, b in pairs)}
    )


def talk(random: Random, i: int) -> str:
    said = (("user", sentence(random)), ("assistant", sentence(random, 1, 3)))
    return json.dumps({"messages": [{"role": role, "content": text} for role, text in said]})


def liked(random: Random, i: int) -> str:
    answers = {"chosen": sentence(random, 1, 2), "rejected": sentence(random, 3, 5)}
    return json.dumps({"prompt": sentence(random), **answers})


def similar_pair(random: Random, i: int) -> str:
    return f"a\tb\t2012\t{i:04}\t{i % 5}.25\t{sentence(random)}\t{sentence(random)}"


TEXTS: dict[str, Callable[[Random], str]] = {
    "src/weft/demo/shakespeare.txt.gz": lines(60, lambda random, i: sentence(random)),
    "tinyshakespeare/input.txt.gz": lines(300, lambda random, i: sentence(random).upper()),
    "wikitext-2/wiki.train.tokens.gz": lines(24, article),
    "wikitext-2/wiki.valid.tokens.gz": lines(3, article),
    "glue/SST-2/train.tsv.gz": lines(
        60, lambda random, i: f"{i % 2}\t{sentence(random)}", "label\tsentence\n"
    ),
    "glue/SST-2/dev.tsv.gz": lines(
        9, lambda random, i: f"{i % 2}\t{sentence(random)}", "label\tsentence\n"
    ),
    "sick/SICK.txt.gz": lines(
        80,
        lambda random, i: (
            f"{i}\t{sentence(random)}\t{sentence(random)}\t{i % 5}.5\t{JUDGEMENTS[i % 3]}"
        ),
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n",
    ),
    "squad/squad-v1.1-dev.json.gz": questions,
    "glue/STS-B/sts-train.csv.gz": lines(60, similar_pair),
    "glue/STS-B/sts-dev.csv.gz": lines(9, similar_pair),
    "multi30k/train.en.gz": lines(80, lambda random, i: sentence(random)),
    "multi30k/train.de.gz": lines(80, lambda random, i: sentence(random)),
    "multi30k/val.en.gz": lines(9, lambda random, i: sentence(random)),
    "multi30k/val.de.gz": lines(9, lambda random, i: sentence(random)),
    "arithmetic/train.jsonl.gz": lines(80, sums),
    "arithmetic/valid.jsonl.gz": lines(9, sums),
    "assistant/train.jsonl.gz": lines(40, talk),
    "assistant/valid.jsonl.gz": lines(9, talk),
    "assistant/preferences.jsonl.gz": lines(40, liked),
    "assistant/preferences_valid.jsonl.gz": lines(9, liked),
    "conll2003/train.txt.gz": lines(60, tagged_sentence),
    "conll2003/valid.txt.gz": lines(9, tagged_sentence),
}
# what the first run reads, relative to the working directory
CLONE = (
    "src/weft/a.py",
    "docs/a.md",
    "README.md",
)
IMAGES = ("cifar10/train", "cifar10/test")
ARRAYS = (
    "cifar10/train.npz",
    "cifar10/test.npz",
    "fashion-mnist/train-images-idx3-ubyte.gz",
    "fashion-mnist/train-labels-idx1-ubyte.gz",
    "fashion-mnist/t10k-images-idx3-ubyte.gz",
    "fashion-mnist/t10k-labels-idx1-ubyte.gz",
)
# table, folder of images, classes
BOXES = {
    "digits_in_scenes/train.json": ("digits_in_scenes/train", 10),
    "digits_in_scenes/valid.json": ("digits_in_scenes/valid", 10),
    "digits_in_small_scenes/train.json": ("digits_in_small_scenes/train", 10),
    "digits_in_small_scenes/valid.json": ("digits_in_small_scenes/valid", 10),
    "bccd/train.json": ("bccd/images", 3),
    "bccd/val.json": ("bccd/images", 3),
}


def character_tokenizer(letters: Iterable[str]) -> str:
    special = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    tokenizer = Tokenizer(
        models.WordLevel(
            {name: i for i, name in enumerate([*special, *letters])}, unk_token="<unk>"
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special])
    return str(tokenizer.to_str())


def write_arrays(path: Path, random: Random) -> None:
    """Thirty images, or their classes."""
    labels = np.arange(30, dtype=np.uint8) % 10
    if path.suffix == ".npz":
        pixels = np.frombuffer(random.randbytes(30 * 32 * 32 * 3), np.uint8)
        np.savez(path, images=pixels.reshape(30, 32, 32, 3), labels=labels)
    else:
        grey = np.frombuffer(random.randbytes(30 * 28 * 28), np.uint8).reshape(30, 28, 28)
        array = grey if "images" in path.name else labels
        header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
        path.write_bytes(gzip.compress(header + array.tobytes(), mtime=0))


def write_boxes(root: Path, table: str, folder: str, classes: int) -> None:
    """Images of noise with none to three boxes, in COCO's layout."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    images = []
    annotations = []
    for number in range(12):
        random = Random(f"{folder}/{number}")
        Image.frombytes("RGB", (48, 32), random.randbytes(48 * 32 * 3)).save(
            root / folder / f"{number}.png"
        )
        images.append({"id": number, "file_name": f"{number}.png"})
        for _ in range(random.randint(0, 3)):
            box = [random.randint(0, 30), random.randint(0, 15), random.randint(5, 16), 12]
            category = random.randint(1, classes)
            annotations.append({"image_id": number, "category_id": category, "bbox": box})
    categories = [{"id": i, "name": str(i)} for i in range(1, classes + 1)]
    tables = {"images": images, "annotations": annotations, "categories": categories}
    (root / table).write_text(json.dumps(tables))


def write_data(root: Path) -> None:
    """Everything that the recipes read, under `root`."""
    for name, make in TEXTS.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(make(Random(name)).encode(), mtime=0))
    for name in CLONE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(lines(60, lambda random, i: sentence(random))(Random(name)))
    (root / "arithmetic" / "tokenizer.json").write_text(
        character_tokenizer("\n :?AQWahilnpstu0123456789")
    )
    for name in ARRAYS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_arrays(root / name, Random(name))
    for table, (name, classes) in BOXES.items():
        write_boxes(root, table, name, classes)
    for name in IMAGES:
        for label in range(10):
            folder = root / name / str(label)
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(3):
                Image.frombytes(
                    "RGB", (32, 32), Random(f"{name}/{label}/{i}").randbytes(32 * 32 * 3)
                ).save(folder / f"{i}.png")
