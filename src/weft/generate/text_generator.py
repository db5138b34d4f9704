"""Text generation from text prompts: tokenization, special tokens, stop strings, detokenization."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from functools import partial
from typing import NamedTuple, TypeVar

import torch

from .. import recipe as R
from .. import spec as S
from ..families import family
from ..nn.loaded_model import LoadedModel
from ..nn.model import Model
from ..recipe.data.conversations import Message
from .beam_search import beam_search
from .chat_template import render_chat
from .decoding import GeneratedTokens, generate, stream
from .detokenizer import StreamDetokenizer
from .sampling import GREEDY, Sampling
from .session import batch_by_length, check_length, max_positions, per_row_limits
from .speculative import speculative_generate

T = TypeVar("T")
U = TypeVar("U")
Progress = Callable[[int, int], None]  # answers given, answers wanted
# default of `weft generate` and `generate()`, at most the positions that are left
DEFAULT_NEW_TOKENS = 128


class Generation(NamedTuple):
    text: str
    tokens: GeneratedTokens


def map_rows(make: Callable[[T], U], rows: Many[T]) -> list[U]:
    """Apply a function to each row; with several rows, an error names the row."""
    results = []
    for number, row in enumerate(rows, 1):
        try:
            results.append(make(row))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}" if len(rows) > 1 else str(error)) from None
    return results


SMALL = 5_000_000  # parameters of a model that one thread decodes fastest


def use_one_thread_if_small(model: Model) -> None:
    """Use one thread for a small model: several threads spend more time on synchronisation than on
    computing.
    """
    if sum(p.numel() for p in model.parameters()) < SMALL:
        torch.set_num_threads(1)


class TextGenerator:
    """A model and its tokenizer."""

    def __init__(self, opened: LoadedModel) -> None:
        self.model = opened.model
        self.tokenizer = opened.require_tokenizer
        self.folder = opened.model.origin or opened.folder
        self.task = None if opened.recipe is None else opened.recipe.task
        self.row = None if opened.recipe is None else opened.recipe.data.rows
        self.before, self.after = self.special_frame()
        self.ends = self.end_tokens()

    def end_tokens(self) -> tuple[int, ...]:
        """Return the tokens that end an answer: those of the spec, else that of the tokenizer."""
        end = self.model.spec.special_tokens.eos
        if end is None:
            end = self.tokenizer.special.get("eos")
        if end is None:
            return ()
        return end if isinstance(end, tuple) else (end,)

    def special_frame(self) -> tuple[list[int], list[int]]:
        """Return the special tokens around a text: those of the run's task, else those of
        tokenizer.json.
        """
        frame = None if self.task is None else self.task.source_frame()
        if frame is not None:
            before, after = ([self.special_token_id(name) for name in side] for side in frame)
            return before, after
        before, after = self.tokenizer.special_frame()
        if self.model.encoder is None:  # the answer continues the text itself
            return before, []
        return (before, after) if before or after else ([], [self.special_token_id("eos")])

    def start(self) -> int:
        """Return the token that the decoder starts with: that of the spec, else of the task, else
        of the family.
        """
        if self.model.spec.special_tokens.decoder_start is not None:
            return self.model.spec.special_tokens.decoder_start
        if self.task is not None:
            return self.special_token_id(self.task.decoder_start())
        name = self.model.family
        return self.special_token_id("bos" if name is None else family(name).decoder_start)

    def special_token_id(self, name: str) -> int:
        if name not in self.tokenizer.special:
            raise ValueError(
                f"the tokenizer has no {name} token, which this model needs; give the tokenizer "
                "that the model was trained with"
            )
        return self.tokenizer.special[name]

    def fill_template(self, text: str) -> str:
        """Return the text in the template of the run's rows, if it has a single column."""
        one = isinstance(self.row, R.TemplatedPairs) and len(self.row.template_columns) == 1
        return (
            self.row.source_text({self.row.template_columns[0]: text})
            if one and isinstance(self.row, R.TemplatedPairs)
            else text
        )

    def encode_with_frame(self, text: str) -> list[int]:
        return [*self.before, *self.tokenizer.encode(text).tolist(), *self.after]

    def encode_prompt(self, text: str) -> list[int]:
        ids = self.encode_with_frame(self.fill_template(text))
        if not ids:
            raise ValueError(
                "the prompt is empty, and the model has no start token; give a prompt with text"
            )
        return ids

    def max_new_tokens(self, prompt: list[int], max_new_tokens: int | None, default: int) -> int:
        """Return how many tokens may follow a prompt: `max_new_tokens`, which must fit, else the
        default or as many as fit.
        """
        if max_new_tokens is not None:
            per_row_limits(max_new_tokens, 1)
        count = max_positions(self.model)
        length = len(self.check_encoder_length(prompt))
        length = length if self.model.encoder is None else 1
        limit = max_new_tokens or (
            default if count is None else max(min(default, count - length), 1)
        )
        check_length(self.model, length, limit)
        return limit

    def check_encoder_length(self, ids: list[int]) -> list[int]:
        """Return the tokens; ValueError if the encoder has too few positions."""
        positions = getattr(self.model.spec.source, "positions", None)
        limit = positions.max_length if isinstance(positions, S.InputPositions) else None
        if self.model.encoder is not None and limit is not None and len(ids) > limit:
            raise ValueError(
                f"a text of {len(ids)} tokens exceeds the model's {limit} positions; give a "
                f"shorter text"
            )
        return ids

    def encode_chat(self, messages: list[Message]) -> list[int]:
        """Encode a conversation with the model's chat template, up to the start of the answer."""
        return render_chat(self.folder, self.tokenizer, messages)

    def detokenizer(
        self, prompt: list[int], stop_strings: tuple[str, ...] = ()
    ) -> StreamDetokenizer:
        return StreamDetokenizer(
            self.tokenizer, prompt if self.model.encoder is None else [], stop_strings
        )

    def stream(
        self,
        prompt: str | list[int],
        *,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        stop_strings: tuple[str, ...] = (),
    ) -> Iterator[str]:
        """Yield the text as it is generated."""
        ids = self.encode_prompt(prompt) if isinstance(prompt, str) else prompt
        detokenizer = self.detokenizer(ids, stop_strings)
        for _, token, _, ended in stream(
            self.model,
            [ids],
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            eos_ids=self.ends,
            decoder_inputs=self.decoder_starts([ids]),
        ):
            if not ended:
                yield detokenizer.add(token)
            if detokenizer.stopped:
                return
        yield detokenizer.close()

    def generate(
        self,
        prompts: list[str] | list[list[int]],
        *,
        max_new_tokens: int | list[int],
        sampling: Sampling = GREEDY,
        stop_strings: tuple[str, ...] = (),
        samples: int = 1,
        draft_model: Model | None = None,
        batch_size: int = 32,
        progress: Progress | None = None,
    ) -> list[list[Generation]]:
        """Generate `samples` answers to each prompt, with the seeds seed, seed + 1, …, of at most
        `max_new_tokens` tokens (one number, or one per prompt). Prompts of similar length share a
        batch.
        """
        ids = [
            self.encode_prompt(prompt) if isinstance(prompt, str) else prompt for prompt in prompts
        ]
        generations: list[list[Generation]] = [[] for _ in ids]
        rows = [(i, sample) for i in range(len(ids)) for sample in range(samples)]
        limits = [
            limit for limit in per_row_limits(max_new_tokens, len(ids)) for _ in range(samples)
        ]
        count = max_positions(self.model) if self.model.encoder is None else None
        done = 0
        for chosen in batch_by_length([len(ids[i]) for i, _ in rows], limits, batch_size, count):
            group = [rows[j] for j in chosen]
            detokenizers = [self.detokenizer(ids[i], stop_strings) for i, _ in group]
            texts = [""] * len(group)

            def until(
                row: int,
                token: int,
                heard: list[StreamDetokenizer] = detokenizers,
                texts: list[str] = texts,
            ) -> bool:
                texts[row] += heard[row].add(token)
                return heard[row].stopped

            generate_batch = (
                generate
                if draft_model is None
                else partial(speculative_generate, draft_model=draft_model)
            )
            generated = generate_batch(
                self.model,
                [ids[i] for i, _ in group],
                max_new_tokens=[limits[j] for j in chosen],
                sampling=sampling,
                eos_ids=self.ends,
                decoder_inputs=self.decoder_starts(group),
                seeds=[sampling.seed + sample for _, sample in group],
                until=until if stop_strings else None,
            )
            for (i, _), one, detokenizer, text in zip(
                group, generated, detokenizers, texts, strict=True
            ):
                generations[i].append(
                    Generation(
                        text + detokenizer.close()
                        if stop_strings
                        else self.detokenize(ids[i], one),
                        one,
                    )
                )
            if progress is not None:
                progress(done := done + len(group), len(rows))
        return generations

    def decoder_starts(self, group: Many[object]) -> list[list[int]] | None:
        return None if self.model.encoder is None else [[self.start()]] * len(group)

    def complete(
        self,
        texts: list[str],
        *,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        stop_strings: tuple[str, ...] = (),
        batch_size: int = 32,
    ) -> list[str]:
        return [
            answers[0].text
            for answers in self.generate(
                texts,
                max_new_tokens=max_new_tokens,
                sampling=sampling,
                stop_strings=stop_strings,
                batch_size=batch_size,
            )
        ]

    def beam_search(
        self,
        prompts: list[str] | list[list[int]],
        *,
        num_beams: int = 4,
        length_penalty: float = 0.6,
        max_new_tokens: int | list[int] | None = None,
        num_return: int = 1,
        batch_size: int = 32,
        progress: Progress | None = None,
    ) -> list[list[Generation]]:
        """Return the `num_return` best answers of beam search, best first."""
        ids = [
            self.encode_prompt(prompt) if isinstance(prompt, str) else prompt for prompt in prompts
        ]
        generations: list[list[Generation]] = [[] for _ in ids]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for at in range(0, len(ids), batch_size):
            group = order[at : at + batch_size]
            beams = beam_search(
                self.model,
                [ids[i] for i in group],
                num_beams=num_beams,
                length_penalty=length_penalty,
                num_return=num_return,
                eos_ids=self.ends,
                max_new_tokens=[max_new_tokens[i] for i in group]
                if isinstance(max_new_tokens, list)
                else max_new_tokens,
                decoder_inputs=self.decoder_starts(group),
            )
            for i, answers in zip(group, beams, strict=True):
                generations[i] = [Generation(self.detokenize(ids[i], one), one) for one in answers]
            if progress is not None:
                progress(at + len(group), len(ids))
        return generations

    def detokenize(self, prompt: list[int], generated: GeneratedTokens) -> str:
        detokenizer = self.detokenizer(prompt)
        return (
            "".join(
                map(
                    detokenizer.add,
                    generated.tokens[:-1] if generated.finished else generated.tokens,
                )
            )
            + detokenizer.close()
        )

    def translate(
        self,
        texts: list[str],
        *,
        num_beams: int = 4,
        length_penalty: float = 0.6,
        batch_size: int = 32,
        progress: Progress | None = None,
    ) -> list[str]:
        """Return one translation per text, in order; an empty text stays empty."""
        if self.model.encoder is None:
            raise ValueError("this model has no encoder; use weft generate to continue a text")
        ids = map_rows(
            lambda text: (
                self.check_encoder_length(self.encode_prompt(text)) if text.strip() else []
            ),
            texts,
        )
        real = [i for i, row in enumerate(ids) if row]
        translations = [""] * len(texts)
        for i, answers in zip(
            real,
            self.beam_search(
                [ids[i] for i in real],
                num_beams=num_beams,
                length_penalty=length_penalty,
                batch_size=batch_size,
                progress=progress,
            ),
            strict=True,
        ):
            translations[i] = answers[0].text
        return translations
