"""One question of a model, many rows."""
import argparse
import sys
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING

from ..say import tell, waiting
from . import TAKEN, Fields, Verb, bad_rows_option, count, number, put, rows_in, writable, write, written

if TYPE_CHECKING:
    from ..evaluate.predict import How
    from ..ready import Ready


def classify(args: argparse.Namespace) -> int:
    rows = asked(args)
    ready, how = opened(args)
    pairs = text_pairs(args, rows, ready)
    from ..evaluate import ask
    with waiting(f"asking {args.name}"):
        found = ask.classify(ready, pairs, how)
    names = ask.class_names(ready)

    def told(own: list[float] | float) -> Fields:
        if not isinstance(own, list):
            return {"prediction": own}
        best = own.index(max(own))
        return {"prediction": names[best], "probability": own[best], "probabilities": dict(zip(names, own, strict=True))}

    def line(own: Fields, pair: tuple[str, str | None]) -> str:
        said = f"{own['prediction']}  {own['probability']:.3f}" if "probability" in own else f"{own['prediction']:.3f}"
        return f"{said}  {pair[0]}" + (f"  |  {pair[1]}" if pair[1] is not None else "")
    return out(args, rows, [told(own) for own in found], lambda made: "\n".join(map(line, made, pairs)))


def tag(args: argparse.Namespace) -> int:
    rows = asked(args)
    ready, how = opened(args)
    sentences = words_of(args, rows, ready)
    from ..evaluate import ask
    from ..evaluate.entities import entities
    with waiting(f"asking {args.name}"):
        found = ask.tag(ready, sentences, how)
    if cut := sum(any(share == 0 for _, share in own) for own in found):
        print(f"weft: {cut:,} of {len(rows):,} rows are longer than the model reads; their last words have no tag", file=sys.stderr)

    def told(row: Fields, words: list[str], own: list[tuple[str, float]]) -> Fields:
        tags = [name for name, _ in own]
        held: Fields = {} if row.get("words") == words else {"words": words}
        return held | {"prediction": tags, "probabilities": [share for _, share in own],
                       "entities": [{"kind": e.kind, "text": " ".join(words[e.first:e.last + 1]), "first": e.first, "last": e.last}
                                    for e in entities(tags) if e.kind]}

    def line(own: Fields, words: list[str]) -> str:
        kinds = {e["last"]: e["kind"] for e in own["entities"]}
        if not kinds and not all(name == "O" for name in own["prediction"]):
            return " ".join(f"{word}/{name}" for word, name in zip(words, own["prediction"], strict=True))
        return " ".join(word + (f" [{kinds[i]}]" if i in kinds else "") for i, word in enumerate(words))
    return out(args, rows, [*map(told, rows, sentences, found)], lambda made: "\n".join(map(line, made, sentences)))


def answer(args: argparse.Namespace) -> int:
    writable(args.out, (".npy",))
    rows, official = questions(args)
    asked = columns_of(args)
    for row in rows:
        if not all(isinstance(row.get(name), str) and row[name].strip() for name in asked):
            raise ValueError(f"give a question and a context; {str(row)[:80]} has not both (columns {' and '.join(map(repr, asked))})")
    ready, how = opened(args)
    from ..evaluate import ask
    with waiting(f"asking {args.name}"):
        found = ask.answer(ready, [(row[asked[0]], row[asked[1]]) for row in rows], how)
    made = []
    for own in found:
        none = args.threshold is not None and own.none > args.threshold
        made.append({"prediction": "" if none else own.text, "begin": -1 if none else own.begin, "end": -1 if none else own.end,
                     "score": finite(own.score), "no_answer": finite(own.none)})
    if official and args.out and args.out.endswith(".json"):       # as SQuAD's own script reads them
        import json
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({row["id"]: own["prediction"] for row, own in zip(rows, made, strict=True)}, file, ensure_ascii=False)
        return written(len(rows), args.out)
    return out(args, rows, made, lambda made: "\n".join(own["prediction"] or "(no answer)" for own in made))


def finite(score: float) -> float | None:
    """JSON has no number for a context that holds nothing."""
    return score if isfinite(score) else None


def embed(args: argparse.Namespace) -> int:
    rows = asked(args, ())
    ready, how = opened(args)
    texts = [first for first, _ in text_pairs(args, rows, ready)]
    from ..evaluate import ask
    with waiting(f"asking {args.name}"):
        found = ask.embed(ready, texts, args.pool, args.normalise, how)
    if args.out and args.out.endswith(".npy"):
        import numpy as np
        np.save(args.out, np.array(found, np.float32), allow_pickle=False)
        return written(len(rows), args.out)

    def line(text: str, own: list[float]) -> str:
        return f"[{', '.join(f'{x:.4f}' for x in own[:4])}, … {len(own)} numbers]  {text}"
    return out(args, rows, [{"vector": own} for own in found], lambda _: "\n".join(map(line, texts, found)))


def fill(args: argparse.Namespace) -> int:
    rows = asked(args)
    ready, how = opened(args)
    texts = [first for first, _ in text_pairs(args, rows, ready)]
    from ..evaluate import ask
    with waiting(f"asking {args.name}"):
        found = ask.fill(ready, texts, args.top, how)
    made = [{"guesses": [[{"word": word, "probability": share} for word, share in place] for place in own]} for own in found]

    def line(text: str, own: list[list[tuple[str, float]]]) -> str:
        return "\n".join(["", text] * (len(texts) > 1) + ["  ".join(f"{word} {share:.3f}" for word, share in place) for place in own])
    return out(args, rows, made, lambda _: "\n".join(map(line, texts, found)).lstrip("\n"))


# What comes in

def asked(args: argparse.Namespace, never: tuple[str, ...] = (".npy",)) -> list[Fields]:
    """Texts one by one, or two by two."""
    rows = rows_in(args, args.texts, never)
    if not args.texts or not getattr(args, "pair", False):
        return rows
    if len(args.texts) % 2:
        raise ValueError(f"--pair takes texts two by two; there are {len(args.texts)}")
    return [{"text": a, "text2": b} for a, b in zip(args.texts[::2], args.texts[1::2], strict=True)]


def text_pairs(args: argparse.Namespace, rows: list[Fields], ready: "Ready") -> list[tuple[str, str | None]]:
    from ..data.columns import text_columns
    first, second = text_columns(rows, args.columns or trained_on(args, rows[0], ready))
    if not hasattr(args, "pair"):
        second = None
    elif args.pair and second is None:
        raise ValueError(f"--pair: which column is the second text? There are {', '.join(map(repr, rows[0]))}; name both with --columns")
    if not args.texts and not args.columns and list(rows[0]) != ["text"]:
        print(f"weft: reading {first!r} as text" + (f", {second!r} as second text" if second else ""), file=sys.stderr)
    for row in rows:
        if any(not isinstance(row.get(name), str) for name in (first, second) if name):
            raise ValueError(f"{str(row)[:80]} has no text in {first!r}" + (f" and {second!r}" if second else ""))
    return [(row[first], row[second] if second else None) for row in rows]


def trained_on(args: argparse.Namespace, fields: Fields, ready: "Ready") -> list[str]:
    """The columns that the run itself read, if they are there and the user does not ask for another kind."""
    from ..recipe import Examples, Templated
    row = None if args.texts or ready.recipe is None else ready.recipe.data.row
    if isinstance(row, Templated):
        return list(row.columns) if set(row.columns) <= set(fields) else []
    if not isinstance(row, Examples) or (row.second is None and getattr(args, "pair", False)):
        return []
    columns = [row.first, *([row.second] if row.second else [])]
    return columns if set(columns) <= set(fields) else []


def words_of(args: argparse.Namespace, rows: list[Fields], ready: "Ready") -> list[list[str]]:
    """Words as they are given, or a text cut into words and punctuation."""
    from ..data.columns import pick
    from ..data.sniff import WORDS
    from ..evaluate.moses import tokenize
    column = args.columns[0] if args.columns else pick(rows[0], WORDS)
    if column is not None and isinstance(rows[0].get(column), list):
        wrong = next((i for i, row in enumerate(rows, 1) if not isinstance(row.get(column), list)), None)
        if wrong is not None:
            raise ValueError(f"row {wrong} has no list of words in {column!r}, as the first has")
        return [[str(word) for word in row[column]] for row in rows]
    return [text.split() if args.split else tokenize(text, args.language) for text, _ in text_pairs(args, rows, ready)]


def questions(args: argparse.Namespace) -> tuple[list[Fields], bool]:
    """Rows of a question and a context, and whether they are a file of SQuAD's."""
    if args.question or args.context:
        if args.file or not (args.question and args.context):
            raise ValueError("give --question and --context, or --in")
        return [{"question": args.question, "context": args.context}], False
    if args.file and is_squad(args.file):
        from ..evaluate.answers import squad_rows
        return [{"id": row.id, "question": row.question, "context": row.context} for row in squad_rows(args.file)], True
    return rows_in(args, []), False


def is_squad(path: str) -> bool:
    from ..data.sniff import format_of, suffix_of
    return suffix_of(path) == ".json" and format_of(path) == "squad"


def columns_of(args: argparse.Namespace) -> tuple[str, str]:
    if args.columns and len(args.columns) != 2:
        raise ValueError("--columns of answer are two: QUESTION CONTEXT")
    question, context = args.columns or ("question", "context")
    return question, context


def opened(args: argparse.Namespace) -> tuple["Ready", "How"]:
    with waiting(f"opening {args.name}"):
        from ..evaluate.predict import How
        from ..ready import ready
        return ready(args.name), How(rows=args.batch, bf16=args.bf16)


# What goes out

def out(args: argparse.Namespace, rows: list[Fields], found: list[Fields], page: Callable[[list[Fields]], str]) -> int:
    put(rows, found)
    if args.out:
        write(args.out, rows)
        return written(len(rows), args.out)
    tell(args, rows, lambda width: page(found))
    return 0


def add(verb: Verb) -> None:
    name = "a run's folder, a model's folder, or a name on the hub"

    def common(made: argparse.ArgumentParser, texts: str | None = "TEXT") -> argparse.ArgumentParser:
        made.add_argument("name", metavar="NAME", help=name)
        if texts:
            made.add_argument("texts", metavar=texts, nargs="*", help="what is asked; without it, --in or standard input")
        made.add_argument("--in", dest="file", metavar="FILE", help=".jsonl, .csv, .tsv, .parquet, or text, a row a line; - is stdin")
        made.add_argument("--out", metavar="FILE", help=f".jsonl, .json, .csv, .tsv or .parquet; the rows with what was answered; {TAKEN}")
        made.add_argument("--columns", nargs="+", default=[], metavar="COLUMN", help="those to read; guessed from their names unless given")
        made.add_argument("--names", nargs="+", default=[], metavar="COLUMN", help="of a table that does not name its columns")
        bad_rows_option(made, 0.0)
        made.add_argument("--batch", type=count, default=32, metavar="ROWS", help="rows at a time; 32 unless given")
        made.add_argument("--bf16", action="store_true", help="in half the precision, faster where the machine has it")
        return made

    common(verb(classify, "the class, or the number, of texts or pairs")).add_argument(
        "--pair", action="store_true", help="texts come two by two")
    made = common(verb(tag, "a tag for every word"))
    made.add_argument("--split", action="store_true", help="words are apart already: cut at spaces only")
    made.add_argument("--language", default="en", help="en unless given; how words and punctuation are parted")
    made = common(verb(answer, "the answer to a question, found in a text"), None)
    made.add_argument("--question", metavar="Q")
    made.add_argument("--context", metavar="TEXT")
    made.add_argument("--threshold", type=number, metavar="X", help="no answer, where that scores more than X better; never unless given")
    made = common(verb(embed, "a vector a text", "To .npy with --out, or JSON."))
    made.add_argument("--pool", choices=("mean", "max", "first", "last"),
                      help="how one vector is made of the tokens' (default: as the folder's modules.json says, else mean)")
    made.add_argument("--normalise", action=argparse.BooleanOptionalAction, default=None,
                      help="scale vectors to length 1 (default: as the folder's modules.json says, else no)")
    common(verb(fill, "guess hidden words", 'Such as weft fill NAME "the man went to the [MASK]".')).add_argument(
        "--top", type=count, default=5, metavar="N", help="as many guesses; 5 unless given")
