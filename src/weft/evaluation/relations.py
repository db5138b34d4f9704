"""Head probing of an opened model on sentences with dependency relations."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ..data.reading.formats.conllu import DependencySentence
from ..inference.look import run_stacks
from ..inference.methods import SingleTextPreprocess
from ..nn.loaded_model import LoadedModel, check_reads_text
from ..observe.attention import attention_maps, attention_places
from ..observe.panels import Observation, Picture
from ..observe.relations import RelationCounts, RelationScore, merge_words, relations_html
from ..tasks.predict import default_row_length, device_of


@torch.no_grad()
def probe_relations(
    model: LoadedModel, sentences: Sequence[DependencySentence], fewest: int = 10
) -> list[RelationScore]:
    """Return, for each relation, the head whose strongest link is most often that relation, with
    the best fixed offset.

    Args:
        model: an encoder or a decoder of text.
        sentences: the result of `weft.data.reading.formats.conllu.read_conllu`.
        fewest: the minimum number of links per relation.
    """
    check_reads_text(model)
    spec = model.model.spec
    if spec.encoder is not None and spec.decoder is not None:
        raise ValueError(f"{model.name} has two stacks; give an encoder or a decoder")
    names = [place.name for place in attention_places(model.model)]
    counts = RelationCounts()
    for sentence in sentences:
        ids, word_L = tokens_of_words(model, sentence)
        if len(ids) > default_row_length(model.model):
            raise ValueError(
                f"{sentence.text[:60]!r} exceeds the maximum of {default_row_length(model.model)} "
                f"tokens of {model.name}; remove it"
            )
        with attention_maps(model.model) as maps:
            run_stacks(model.model, torch.tensor([ids], device=device_of(model.model)))
        words = len(sentence.words)
        weight_YHWW = torch.stack(
            [merge_words(maps[n][0].float().cpu(), word_L, words) for n in names]
        )
        counts.add(weight_YHWW, sentence.heads, sentence.relations)
    return counts.best_heads(fewest)


def tokens_of_words(
    model: LoadedModel, sentence: DependencySentence
) -> tuple[list[int], torch.Tensor]:
    """Return the tokens of a sentence with special tokens, and the word of each; -1 for special
    tokens.

    Raises:
        ValueError: if a word has no token.
    """
    frame = SingleTextPreprocess(model)
    tokenizer = model.require_tokenizer
    ids, spans = tokenizer.encode_spans(sentence.text)
    starts = np.array([start for start, _ in sentence.spans])
    # A token belongs to the word with its first letter.
    words = [max(0, int(np.searchsorted(starts, begin, "right")) - 1) for begin, _ in spans]
    missing = set(range(len(starts))) - set(words)
    if missing:
        raise ValueError(
            f"{sentence.words[min(missing)]!r} in {sentence.text[:60]!r} has no separate token; "
            "remove the sentence"
        )
    before = list(frame.before)
    after = list(frame.after)
    word_L = torch.tensor([-1] * len(before) + words + [-1] * len(after))
    return [*before, *map(int, ids), *after], word_L


def with_relations(observation: Observation, scores: Sequence[RelationScore]) -> Observation:
    """Return the observation with the table of the best heads."""
    caption = (
        "For each relation, the head whose strongest link to another word is most often that "
        "relation, and the best fixed offset; "
        "held out: chosen on one half of the sentences, scored on the other."
    )
    picture = Picture("Heads and dependency relations", caption, relations_html(scores))
    return replace(observation, pictures=(picture, *observation.pictures))
