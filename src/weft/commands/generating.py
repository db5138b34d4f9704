"""Text from models: one token after another."""
import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..say import PATIENCE, tell, waiting
from . import TAKEN, Fields, Verb, bad_rows_option, count, number, put, rows_in, write, written

if TYPE_CHECKING:
    from ..generate.choose import Sampling
    from ..generate.text import Answer, Writer

MOST, MANY = 128, 4
TABLES = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet")
TEXT = ("prompt", "text", "source", "src", "sentence", "question")


def generate(args: argparse.Namespace) -> int:
    how = sampling(args)
    if args.beams and (args.draft or args.samples > 1 or args.stop or how.temperature or how.repetition != 1):
        raise ValueError("--beams searches: it goes with --alpha, --best and --most, not with sampling, --repetition, --stop or --draft")
    if "" in args.stop:
        raise ValueError("--stop needs a text; an empty one would stop at once")
    if args.best > 1 and not args.beams:
        raise ValueError("--best is of --beams; for several answers that are drawn, --samples")
    rows = rows_in(args, [args.prompt] if args.prompt is not None else [])
    writer = open_writer(args, len(rows))
    column = None if args.chat and "messages" in rows[0] else text_column(args, rows)
    prompts, limits = asked(args, writer, rows, column)
    one = len(rows) == 1 and not (args.json or args.out or args.beams or args.draft or args.logprobs) and args.samples == 1
    if one:
        for piece in writer.stream(prompts[0], most=limits[0], how=how, stops=stops(args)):
            print(piece, end="", flush=True)
        print()
        return 0
    found = answers(args, writer, prompts, limits, how)
    several = args.samples > 1 or args.best > 1
    put(rows, [{"answers": [plain(args, one) for one in own]} if several else plain(args, own[0]) for own in found])
    return out(args, rows, [escape(one.text) for own in found for one in own])


def translate(args: argparse.Namespace) -> int:
    rows = rows_in(args, args.texts)
    writer, column = open_writer(args, len(rows)), text_column(args, rows)
    with Left("translated") as left:
        found = writer.translate([row[column] for row in rows], beams=args.beams, alpha=args.alpha, batch=args.batch, progress=left)
    put(rows, [{"translation": text} for text in found])
    return out(args, rows, [" ".join(text.split("\n")) for text in found])


def asked(args: argparse.Namespace, writer: "Writer", rows: list[Fields], column: str | None) -> tuple[list[list[int]], list[int]]:
    """The prompts, and how many tokens each answer may have."""
    from ..generate.text import numbered
    prompts = numbered(lambda row: prompt_of(writer, row, column, args.chat), rows)
    return prompts, numbered(lambda prompt: writer.room(prompt, args.most, MOST), prompts)


def answers(args: argparse.Namespace, writer: "Writer", prompts: list[list[int]], limits: list[int],
            how: "Sampling") -> list[list["Answer"]]:
    with Left("answered") as left:
        if args.beams:
            return writer.search(prompts, beams=args.beams, alpha=args.alpha, most=limits, best=args.best, batch=args.batch,
                                 progress=left)
        draft = None
        if args.draft:
            from ..ready import ready
            draft = ready(args.draft).model
        return writer.answer(prompts, most=limits, how=how, stops=stops(args), samples=args.samples, draft=draft, batch=args.batch,
                             progress=left)


def sampling(args: argparse.Namespace) -> "Sampling":
    """Asked to draw in any way, it draws."""
    from ..generate.choose import Sampling
    drawn = args.samples > 1 or any(x is not None for x in (args.top_k, args.top_p, args.min_p, args.seed))
    return Sampling(temperature=(1.0 if drawn else 0.0) if args.temperature is None else args.temperature, top_k=args.top_k,
                    top_p=args.top_p, min_p=args.min_p, repetition=args.repetition, seed=args.seed or 0)


def stops(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(stop.replace("\\n", "\n") for stop in args.stop)


def open_writer(args: argparse.Namespace, rows: int) -> "Writer":
    """For many rows it pays to lay the weights out first."""
    with waiting(f"opening {args.name}"):
        from ..generate.text import Writer
        from ..ready import ready
        return Writer(ready(args.name), args.precision or ("float32" if rows > MANY else None))


def prompt_of(writer: "Writer", row: Fields, column: str | None, chat: bool) -> list[int]:
    if not chat:
        return writer.ids(row[column or ""])
    return writer.chat(row.get("messages", []) if column is None else [{"role": "user", "content": row[column]}])


# What comes in

def text_column(args: argparse.Namespace, rows: list[Fields]) -> str:
    from ..data.columns import given, need, pick
    given(rows[0], [args.column] if args.column else [])
    column = need(rows[0], args.column or (next(iter(rows[0])) if len(rows[0]) == 1 else pick(rows[0], TEXT)), "text", "--column")
    wrong = next((i for i, row in enumerate(rows, 1) if not isinstance(row.get(column), str)), None)
    if wrong is not None:
        raise ValueError(f"row {wrong} has no text in {column!r}")
    return column


# What goes out

def plain(args: argparse.Namespace, answer: "Answer") -> Fields:
    found: Fields = {"answer": answer.text, "ended": answer.said.ended}
    if args.beams:
        found["score"] = answer.said.score
    if args.logprobs:
        found |= {"tokens": answer.said.tokens, "logprobs": answer.said.logprobs}
    return found


def escape(text: str) -> str:
    """One answer a line, whatever it holds."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def out(args: argparse.Namespace, rows: list[Fields], lines: list[str]) -> int:
    if not args.out:
        tell(args, rows, lambda width: "\n".join(lines))
        return 0
    if Path(args.out).suffix.lower() in TABLES:
        write(args.out, rows)
    else:
        Path(args.out).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return written(len(rows), args.out)


class Left:
    """How many are done and how long the others take, on stderr, once it takes long."""

    def __init__(self, what: str) -> None:
        self.what, self.began, self.last, self.screen = what, time.perf_counter(), 0.0, sys.stderr.isatty()

    def __enter__(self) -> "Left":
        return self

    def __exit__(self, *_: object) -> None:
        if self.last and self.screen:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, done: int, total: int) -> None:
        spent = time.perf_counter() - self.began
        if spent < PATIENCE or done == total or spent - self.last < (0.2 if self.screen else 15):
            return
        self.last, seconds = spent, spent * (total - done) / done
        line = f"weft: {self.what} {done:,} of {total:,}, {int(seconds // 60)}:{int(seconds % 60):02} left"
        print(f"\r{line}\x1b[K" if self.screen else line, end="" if self.screen else "\n", file=sys.stderr, flush=True)


def common(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("--in", dest="file", metavar="FILE", help=".jsonl, .csv, .tsv, .parquet, or text, one a line; - is standard input")
    made.add_argument("--out", metavar="FILE", help=".jsonl, .json, .csv, .tsv or .parquet: the rows with what was said "
                      f"({TAKEN}); else text, one a line")
    bad_rows_option(made, 0.0)
    made.add_argument("--column", metavar="NAME", help="the column with the text; guessed from its name unless given")
    made.add_argument("--batch", type=count, default=32, metavar="ROWS", help="rows at a time, those of about one length; 32 unless given")
    made.add_argument("--precision", choices=("float32", "bf16", "int8"), help="float32 unless given; the others are faster and say nearly "
                      "the same")
    return made


def add(verb: Verb) -> None:
    made = common(verb(generate, "go on from a text", "One prompt is answered as it comes; many, in the order that they came in, "
                       r"a line each: \n, \r and \\ in it are a line end, a return and a backslash."))
    made.add_argument("name", metavar="NAME", help="a run's folder, a model's folder, or a name on the hub")
    made.add_argument("prompt", metavar="PROMPT", nargs="?", help="without it, --in or standard input")
    made.add_argument("--most", type=count, metavar="N", help=f"tokens; {MOST}, or as many as fit, unless given")
    made.add_argument("--temperature", type=float, metavar="T", help="0: the likeliest token each time, as it is unless drawing is "
                      "asked for in any way; then 1")
    made.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest")
    made.add_argument("--top-p", type=float, metavar="P", help="draw from the fewest that hold P of the probability")
    made.add_argument("--min-p", type=float, metavar="P", help="draw from those at least P times as likely as the likeliest")
    made.add_argument("--repetition", type=float, default=1.0, metavar="R", help="above 1: what was said is less likely")
    made.add_argument("--seed", type=int, help="the same seed, the same answer; 0 unless given")
    made.add_argument("--samples", type=count, default=1, metavar="N", help="answers to each prompt, with seeds that follow one another")
    made.add_argument("--stop", action="append", default=[], metavar="TEXT", help="an answer ends before this text; may be given again")
    made.add_argument("--beams", type=count, metavar="N", help="beam search")
    made.add_argument("--alpha", type=number, default=0.6, help="its length penalty; 0.6 unless given")
    made.add_argument("--best", type=count, default=1, metavar="N", help="answers of beam search")
    made.add_argument("--logprobs", action="store_true", help="also the tokens and their log-probabilities, with --json or --out")
    made.add_argument("--chat", action="store_true", help="the prompt is a message, or a row's `messages`: use the model's chat template")
    made.add_argument("--draft", metavar="NAME",
                      help="a small model of the same tokens that guesses ahead; answers stay as likely, greedy ones the same")
    made = common(verb(translate, "translate texts, a line each", "By beam search, at most 50 tokens longer than the text."))
    made.add_argument("name", metavar="NAME", help="a run's folder, a model's folder, or a name on the hub")
    made.add_argument("texts", metavar="TEXT", nargs="*", help="without it, --in or standard input")
    made.add_argument("--beams", type=count, default=4, metavar="N", help="4 unless given")
    made.add_argument("--alpha", type=number, default=0.6, help="the length penalty; 0.6 unless given")
