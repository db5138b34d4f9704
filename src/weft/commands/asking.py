"""One question of a model, many rows."""
import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..say import tell, waiting
from . import Verb

if TYPE_CHECKING:
    from ..evaluate.predict import How
    from ..ready import Ready

Fields = dict[str, Any]


def classify(args: argparse.Namespace) -> int:
    rows = rows_in(args)
    pairs = text_pairs(args, rows)
    ready, how = opened(args)
    from ..evaluate import ask
    with waiting(f"asking {args.name}"):
        found = ask.classify(ready, pairs, how)
    names = ask.class_names(ready)
    for row, own in zip(rows, found, strict=True):
        if isinstance(own, list):
            best = own.index(max(own))
            row |= {"prediction": names[best], "probability": own[best], "probabilities": dict(zip(names, own, strict=True))}
        else:
            row |= {"prediction": own}

    def line(row: Fields, pair: tuple[str, str | None]) -> str:
        said = f"{row['prediction']}  {row['probability']:.3f}" if "probability" in row else f"{row['prediction']:.3f}"
        return f"{said}  {pair[0]}" + (f"  |  {pair[1]}" if pair[1] is not None else "")
    return out(args, rows, lambda: "\n".join(map(line, rows, pairs)))


def tag(args: argparse.Namespace) -> int:
    rows = rows_in(args)
    sentences = words_of(args, rows)
    ready, how = opened(args)
    from ..evaluate import ask
    from ..evaluate.entities import entities
    with waiting(f"asking {args.name}"):
        found = ask.tag(ready, sentences, how)
    for row, words, own in zip(rows, sentences, found, strict=True):
        tags = [name for name, _ in own]
        row |= {"words": words, "prediction": tags, "probabilities": [share for _, share in own],
                "entities": [{"kind": e.kind, "text": " ".join(words[e.first:e.last + 1]), "first": e.first, "last": e.last}
                             for e in entities(tags) if e.kind]}

    def line(row: Fields) -> str:
        kinds = {e["last"]: e["kind"] for e in row["entities"]}
        if not kinds and not all(name == "O" for name in row["prediction"]):
            return " ".join(f"{word}/{name}" for word, name in zip(row["words"], row["prediction"], strict=True))
        return " ".join(word + (f" [{kinds[i]}]" if i in kinds else "") for i, word in enumerate(row["words"]))
    return out(args, rows, lambda: "\n".join(map(line, rows)))


def answer(args: argparse.Namespace) -> int:
    rows, official = questions(args)
    for row in rows:
        if not str(row.get("context") or "").strip() or not str(row.get("question") or "").strip():
            raise ValueError(f"a question and a context are asked for; {str(row)[:80]} has not both (columns 'question' and 'context')")
    ready, how = opened(args)
    from ..evaluate import ask
    with waiting(f"asking {args.name}"):
        found = ask.answer(ready, [(row["question"], row["context"]) for row in rows], how)
    for row, own in zip(rows, found, strict=True):
        none = args.threshold is not None and own.none > args.threshold
        row |= {"prediction": "" if none else own.text, "begin": -1 if none else own.begin, "end": -1 if none else own.end,
                "score": own.score, "no_answer": own.none}
    if official and args.out and args.out.endswith(".json"):       # as SQuAD's own script reads them
        import json
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({row["id"]: row["prediction"] for row in rows}, file, ensure_ascii=False)
        return told(len(rows), args.out)
    return out(args, rows, lambda: "\n".join(row["prediction"] or "(no answer)" for row in rows))


def embed(args: argparse.Namespace) -> int:
    rows = rows_in(args)
    texts = [first for first, _ in text_pairs(args, rows)]
    ready, how = opened(args)
    from ..evaluate import ask
    with waiting(f"asking {args.name}"):
        found = ask.embed(ready, texts, args.pool, args.normalise, how)
    if args.out and args.out.endswith(".npy"):
        import numpy as np
        np.save(args.out, np.array(found, np.float32), allow_pickle=False)
        return told(len(rows), args.out)
    for row, own in zip(rows, found, strict=True):
        row |= {"vector": own}

    def line(text: str, own: list[float]) -> str:
        return f"[{', '.join(f'{x:.4f}' for x in own[:4])}, … {len(own)} numbers]  {text}"
    return out(args, rows, lambda: "\n".join(map(line, texts, found)))


def fill(args: argparse.Namespace) -> int:
    rows = rows_in(args)
    texts = [first for first, _ in text_pairs(args, rows)]
    ready, how = opened(args)
    from ..evaluate import ask
    with waiting(f"asking {args.name}"):
        found = ask.fill(ready, texts, args.top, how)
    for row, own in zip(rows, found, strict=True):
        row |= {"guesses": [[{"word": word, "probability": share} for word, share in place] for place in own]}

    def line(text: str, own: list[list[tuple[str, float]]]) -> str:
        return "\n".join(["", text] * (len(texts) > 1) + ["  ".join(f"{word} {share:.3f}" for word, share in place) for place in own])
    return out(args, rows, lambda: "\n".join(map(line, texts, found)).lstrip("\n"))


# What comes in

def rows_in(args: argparse.Namespace) -> list[Fields]:
    """Texts on the command line, a file, or standard input."""
    from ..evaluate.tables import rows_of
    if args.texts and args.file:
        raise ValueError("give texts or --in, not both")
    if args.texts:
        if not getattr(args, "pair", False):
            return [{"text": text} for text in args.texts]
        if len(args.texts) % 2:
            raise ValueError(f"--pair takes texts two by two; there are {len(args.texts)}")
        return [{"text": a, "text2": b} for a, b in zip(args.texts[::2], args.texts[1::2], strict=True)]
    if not args.file and sys.stdin.isatty():
        raise ValueError("nothing is asked; give a text, --in FILE, or standard input")
    rows = rows_of(args.file or "-", args.names)
    if not rows:
        raise ValueError(f"{args.file or 'standard input'} holds no row")
    return rows


def text_pairs(args: argparse.Namespace, rows: list[Fields]) -> list[tuple[str, str | None]]:
    from ..evaluate.tables import text_columns
    first, second = text_columns(rows[0], args.columns)
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


def words_of(args: argparse.Namespace, rows: list[Fields]) -> list[list[str]]:
    """Words as they are given, or a text cut into words and punctuation."""
    from ..evaluate.moses import tokenize
    from ..evaluate.tables import WORDS, pick
    column = args.columns[0] if args.columns else pick(rows[0], WORDS)
    if column is not None and isinstance(rows[0].get(column), list):
        return [[str(word) for word in row[column]] for row in rows]
    return [text.split() if args.split else tokenize(text, args.language) for text, _ in text_pairs(args, rows)]


def questions(args: argparse.Namespace) -> tuple[list[Fields], bool]:
    """Rows of a question and a context, and whether they are a file of SQuAD's."""
    if args.question or args.context:
        if args.file or not (args.question and args.context):
            raise ValueError("give --question and --context, or --in")
        return [{"question": args.question, "context": args.context}], False
    if args.file and args.file.removesuffix(".gz").endswith(".json"):
        from ..evaluate.answers import squad_rows
        return [{"id": row.id, "question": row.question, "context": row.context} for row in squad_rows(args.file)], True
    args.texts = []
    return rows_in(args), False


def opened(args: argparse.Namespace) -> tuple["Ready", "How"]:
    with waiting(f"opening {args.name}"):
        from ..evaluate.predict import How
        from ..ready import ready
        return ready(args.name), How(rows=args.batch, bf16=args.bf16)


# What goes out

def out(args: argparse.Namespace, rows: list[Fields], page: Callable[[], str]) -> int:
    if args.out:
        from ..evaluate.tables import write_rows
        write_rows(args.out, rows)
        return told(len(rows), args.out)
    tell(args, rows, lambda width: page())
    return 0


def told(count: int, path: str) -> int:
    print(f"weft: {count:,} row{'s' * (count != 1)} in {path}", file=sys.stderr)
    return 0


def add(verb: Verb) -> None:
    name = "a run's folder, a model's folder, or a name on the hub"

    def common(made: argparse.ArgumentParser, texts: str | None = "TEXT") -> argparse.ArgumentParser:
        made.add_argument("name", metavar="NAME", help=name)
        if texts:
            made.add_argument("texts", metavar=texts, nargs="*", help="what is asked; without it, --in or standard input")
        made.add_argument("--in", dest="file", metavar="FILE", help=".jsonl, .csv, .tsv, .parquet, or text, a row a line; - is stdin")
        made.add_argument("--out", metavar="FILE", help=".jsonl, .json, .csv or .tsv; the rows with what was answered")
        made.add_argument("--columns", nargs="+", default=[], metavar="COLUMN", help="those to read; guessed from their names unless given")
        made.add_argument("--names", nargs="+", default=[], metavar="COLUMN", help="of a table that does not name its columns")
        made.add_argument("--batch", type=int, default=32, metavar="ROWS", help="rows at a time; 32 unless given")
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
    made.add_argument("--threshold", type=float, metavar="X", help="no answer, where that scores more than X better; never unless given")
    made = common(verb(embed, "a vector a text", "To .npy with --out, or JSON."))
    made.add_argument("--pool", default="mean", choices=("mean", "first", "last"), help="mean over the tokens unless given")
    made.add_argument("--normalise", action="store_true", help="vectors of length 1")
    common(verb(fill, "guess hidden words", 'Such as weft fill NAME "the man went to the [MASK]".')).add_argument(
        "--top", type=int, default=5, metavar="N", help="as many guesses; 5 unless given")
