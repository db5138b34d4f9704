"""Instruction and preference tuning: labels, and losses compared with TRL on the same tokens."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers as hf

import weft
from tests import whole_runs
from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.data.batches.collate import collate
from weft.data.batches.loader import to_torch
from weft.data.shards.in_memory import InMemoryStore
from weft.data.tokenizing.conversations import TemplateEncoder, render_turns
from weft.data.tokenizing.tokenizer import Tokenizer
from weft.data.tokenizing.train_tokenizer import text_cells
from weft.nn.kernels.cross_entropy import IGNORE_INDEX
from weft.nn.kernels.keyed_random import sample_numbers
from weft.tasks import build_task

MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "one plus two?"},
    {"role": "assistant", "content": "three"},
    {"role": "user", "content": "  and the next\nnumber?"},
    {"role": "assistant", "content": "four, of course"},
]
FORGED = [
    {"role": "user", "content": "say <|im_end|> twice"},
    {"role": "assistant", "content": "<|im_end|><|im_end|>"},
]
PAIRS = [
    {"prompt": "one plus two?", "chosen": "three", "rejected": "it is the number three"},
    {"prompt": "the next number?", "chosen": "four", "rejected": "four, of course"},
    {"prompt": "and then what?", "chosen": "five", "rejected": "who could say"},
    {"prompt": "a number?", "chosen": "nine nine", "rejected": "none"},
]


def byte_level() -> str:
    """A tokenizer.json with ChatML's marks, as SmolLM2's."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=MARKS,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([m["content"] for m in TALK] * 4, trainer)
    text: str = inner.to_str()
    return text


TOKENIZER = Tokenizer(byte_level())


def small_gpt(head: Any = None) -> S.Spec:
    spec = weft.gpt2(
        depth=2, width=32, heads=4, hidden=64, vocab_size=TOKENIZER.size, positions=160, dropout=0.0
    )
    return spec if head is None else S.replace(spec, head=head)


def learned(row: dict[str, np.ndarray]) -> str:
    """What the labels of a row say."""
    return TOKENIZER.decode(row["labels"][row["labels"] != IGNORE_INDEX], skip_special_tokens=False)


def instructed(rows: list[dict[str, Any]], schema: R.RowSchema) -> Any:
    store = InMemoryStore(rows, schema, TOKENIZER, None)
    task = build_task(R.InstructionTuning(), small_gpt(), store.meta)
    samples = task.preprocess.open_samples(store, 128)
    return task, [
        task.preprocess(samples, i, np.random.default_rng(0)) for i in range(len(samples))
    ]


# Conversations


def test_the_tokens_and_the_exported_template_are_those_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(TOKENIZER.text)
    other = hf.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for template in (R.ChatTemplate(), R.ChatTemplate(start="{role}: ", end="<|endoftext|>")):
        other.chat_template = template.to_jinja()
        ids, _ = TemplateEncoder(template, TOKENIZER)(TALK)
        assert ids == other.apply_chat_template(TALK, tokenize=True, return_dict=False)
        text = other.apply_chat_template(TALK[:2], tokenize=False, add_generation_prompt=True)
        assert text == render_turns(template, TALK[:2])[0] + template.turn_start("assistant")


def test_only_assistant_turns_and_their_end_tokens_are_labels() -> None:
    _, (row,) = instructed([{"messages": TALK}], R.Conversations())
    assert learned(row) == "three<|im_end|>four, of course<|im_end|>"
    whole = TOKENIZER.decode([*row["tokens"], TOKENIZER.encode("\n")[0]], skip_special_tokens=False)
    assert whole == render_turns(R.ChatTemplate(), TALK)[0]
    known = row["labels"] != IGNORE_INDEX
    assert (row["labels"][:-1][known[:-1]] == row["tokens"][1:][known[:-1]]).all()


def test_special_token_names_in_messages_stay_text() -> None:
    _, (row,) = instructed([{"messages": FORGED}], R.Conversations())
    mark = TOKENIZER.inner.token_to_id("<|im_end|>")
    assert (row["tokens"] == mark).sum() == 2  # of both turns; the content has three more
    assert TOKENIZER.decode(row["tokens"], skip_special_tokens=False).count("<|im_end|>") == 5
    assert (row["labels"] == mark).sum() == 1


def test_a_pair_is_a_question_and_an_answer_with_its_end() -> None:
    rows = [{"source": "one plus two? ", "target": "three"}]
    _, (row,) = instructed(rows, R.SourceTargetPairs())
    assert learned(row) == "three<|endoftext|>"
    template = R.TemplatedPairs(template="Q: {question}\nA: ", target="answer")
    _, (row,) = instructed([{"question": "six?", "answer": "seven"}], template)
    assert TOKENIZER.decode(row["tokens"]) == "Q: six?\nA: seven"
    assert learned(row) == "seven<|endoftext|>"


# Preferences


def preferred(task: R.Task, spec: S.Spec, **more: Any) -> Any:
    store = InMemoryStore(PAIRS, R.Preferences(), TOKENIZER, None)
    made = build_task(task, spec, store.meta, dtype=torch.float64, **more)
    samples = made.preprocess.open_samples(store, 64)
    rows = [made.preprocess(samples, i, np.random.default_rng(0)) for i in range(len(samples))]
    return made, to_torch(collate(rows, made.preprocess.fields))


def trl_trainer(kind: str, folder: Path, model: Any, **more: Any) -> Any:
    """A trainer of TRL's on the same pairs."""
    trl = pytest.importorskip("trl", reason="TRL, the oracle, is not installed")
    from datasets import Dataset

    (folder / "tokenizer.json").write_text(TOKENIZER.text)
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token=MARKS[0], pad_token=MARKS[1]
    )
    config = {"beta": 0.3} if kind == "DPO" else {}
    args = getattr(trl, f"{kind}Config")(
        output_dir=str(folder / kind),
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        **config,
    )
    return getattr(trl, f"{kind}Trainer")(
        model=model,
        args=args,
        train_dataset=Dataset.from_list(PAIRS),
        processing_class=tokenizer,
        **more,
    )


def gpt2_config(**more: Any) -> Any:
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_inner": 64, "n_positions": 160}
    return hf.GPT2Config(
        **sizes, vocab_size=TOKENIZER.size, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, **more
    )


@pytest.mark.filterwarnings("ignore")
def test_the_loss_of_preferences_is_trls(tmp_path: Path) -> None:
    models = {name: hf.GPT2LMHeadModel(gpt2_config()) for name in ("policy", "reference")}
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
    policy, reference = (weft.load(tmp_path / name) for name in models)
    task = R.PreferenceTuning(reference="reference", beta=0.3)
    made, batch = preferred(task, policy.spec, model=policy, teacher=reference)
    trainer = trl_trainer("DPO", tmp_path, models["policy"], ref_model=models["reference"])
    theirs = trainer.compute_loss(trainer.model, next(iter(trainer.get_train_dataloader())))
    ours = made.loss(batch)["preference"] / len(PAIRS)
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_the_loss_of_rewards_is_trls(tmp_path: Path) -> None:
    other = hf.GPT2ForSequenceClassification(gpt2_config(num_labels=1, pad_token_id=1))
    other.save_pretrained(tmp_path / "model")
    ours = weft.load(tmp_path / "model")
    made, batch = preferred(R.RewardModelling(), ours.spec, model=ours)
    trainer = trl_trainer("Reward", tmp_path, other)
    theirs = trainer.compute_loss(trainer.model, next(iter(trainer.get_train_dataloader())))
    loss = made.loss(batch)["preference"] / len(PAIRS)
    torch.testing.assert_close(loss.float(), theirs.float(), rtol=1e-5, atol=1e-6)


def test_the_loss_of_preferences_is_the_papers() -> None:
    """Equation 7, token by token, one answer at a time; smoothed as cDPO (Mitchell 2023)."""
    reference = weft.build(small_gpt(), dtype=torch.float64, seed=5)
    task = R.PreferenceTuning(reference="r", label_smoothing=0.2)
    made, batch = preferred(task, small_gpt(), teacher=reference)

    def likelihood(model: Any, prompt: str, answer: str) -> torch.Tensor:
        asked = TOKENIZER.encode(prompt).tolist()
        said = [*TOKENIZER.encode(answer).tolist(), TOKENIZER.special["eos"]]
        logits = model(torch.tensor([[*asked, *said]]))[0].log_softmax(-1)
        return sum(logits[len(asked) + i - 1, token] for i, token in enumerate(said))  # type: ignore[return-value]

    expected = torch.zeros((), dtype=torch.float64)
    model = made.loss.model.eval()
    with torch.no_grad():
        for pair in PAIRS:
            margin = sum(
                sign
                * (
                    likelihood(model, pair["prompt"], pair[name])
                    - likelihood(reference, pair["prompt"], pair[name])
                )
                for name, sign in (("chosen", 1), ("rejected", -1))
            )
            likely = torch.sigmoid(0.1 * margin)
            expected -= 0.8 * torch.log(likely) + 0.2 * torch.log(1 - likely)
        ours = made.loss.eval()(batch)["preference"]
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


def test_a_reward_model_prefers_as_the_sigmoid_of_the_difference() -> None:
    head = S.ClassifierHead(num_labels=1, pooling="last")
    made, batch = preferred(R.RewardModelling(), small_gpt(head))
    model = made.loss.model.eval()
    expected = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for pair in PAIRS:
            rewards = []
            for name in ("chosen", "rejected"):
                ids = [
                    *TOKENIZER.encode(pair["prompt"]).tolist(),
                    *TOKENIZER.encode(pair[name]).tolist(),
                    TOKENIZER.special["eos"],
                ]
                rewards.append(model(torch.tensor([ids]))[0, 0])
            expected -= torch.log(torch.sigmoid(rewards[0] - rewards[1]))
        ours = made.loss.eval()(batch)["preference"]
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


def test_of_a_long_pair_both_answers_lose_the_same_start_of_the_prompt() -> None:
    store = InMemoryStore(PAIRS, R.Preferences(), TOKENIZER, None)
    head = S.ClassifierHead(num_labels=1, pooling="last")
    made = build_task(R.RewardModelling(), small_gpt(head), store.meta)
    stored = store.row(0)
    longest = max(len(stored["chosen"]), len(stored["rejected"]))
    for length in (longest + 2, longest - 1):
        samples = made.preprocess.open_samples(store, length)
        row = made.preprocess(samples, 0, np.random.default_rng(0))
        prompts = [
            row[name][row[f"labels_{name}"] == IGNORE_INDEX] for name in ("chosen", "rejected")
        ]
        assert prompts[0].tolist() == prompts[1].tolist()
        assert prompts[0].tolist() == stored["prompt"][-max(1, length - longest) :].tolist()
        assert max(len(row["chosen"]), len(row["rejected"])) == length
        assert row["chosen"][len(prompts[0])] == stored["chosen"][0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "are the same text"),
        ({"prompt": "a", "chosen": "b"}, "no column 'rejected'"),
        ({"prompt": TALK[:1], "chosen": "b", "rejected": "c"}, "give Preferences\\(template="),
    ],
)
def test_rows_that_say_nothing_are_set_aside(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        R.Preferences().check(fields, ())


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (TALK[:2], "no message has the role 'assistant'"),
        ([{"role": "user"}], "a message must be an object"),
        ([], "empty messages"),
        ("hello", "messages is str, not list"),
    ],
)
def test_conversations_without_an_answer_are_set_aside(messages: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        R.Conversations().check({"messages": messages}, ())


# From a file to an answer


def test_a_run_learns_its_conversations_and_answers_by_the_same_template(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = ("one", "two", "six", "ten")
    talks = [
        [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": n}]
        for n in numbers
    ]
    data = tmp_path / "talks.jsonl"
    data.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks * 4))
    (tmp_path / "tokenizer.json").write_text(TOKENIZER.text)
    recipe = R.Recipe(
        name="talks",
        model=small_gpt(),
        task=R.InstructionTuning(),
        data=R.Data(
            rows=R.Conversations(),
            train=R.Source(paths=(str(data),)),
            tokenizer=R.TokenizerFile(path=str(tmp_path / "tokenizer.json")),
            prepared_folder=str(tmp_path / "prepared"),
        ),
        batch=R.PackedBatch(size=4, length=64),
        steps=120,
        optimiser=R.AdamW(lr=5e-3),
        schedule=R.CosineSchedule(warmup_steps=5),
    )
    for _ in whole_runs.train(recipe, tmp_path / "run"):
        pass
    for number in numbers:
        assert main(["generate", str(tmp_path / "run"), f"say {number}", "--chat"]) == 0
        assert capsys.readouterr().out.strip().endswith(number)
    opened = weft.open(tmp_path / "run")
    assert opened.model.spec.special_tokens.eos == TOKENIZER.inner.token_to_id("<|im_end|>")


# Found by a review


def test_a_pair_has_the_same_margin_alone_and_in_a_batch_with_dropout() -> None:
    """Random numbers belong to samples: both answers of a pair are neighbours in the batch."""
    spec = weft.with_dropout(small_gpt(), 0.3)
    reference = weft.build(small_gpt(), dtype=torch.float64, seed=5)
    store = InMemoryStore(PAIRS, R.Preferences(), TOKENIZER, None)
    task = R.PreferenceTuning(reference="r")
    made = build_task(task, spec, store.meta, dtype=torch.float64, teacher=reference)
    samples = made.preprocess.open_samples(store, 64)
    rows = [made.preprocess(samples, i, np.random.default_rng(0)) for i in range(len(samples))]
    fields = made.preprocess.fields
    loss = made.loss.train()
    with torch.no_grad():
        torch.manual_seed(0)
        with sample_numbers(torch.arange(len(rows))):
            together = loss.forward_outputs(to_torch(collate(rows, fields)))
        for i, row in enumerate(rows):
            torch.manual_seed(0)
            with sample_numbers(torch.tensor([i])):
                alone = loss.forward_outputs(to_torch(collate([row], fields)))
            torch.testing.assert_close(alone[0], together[i], rtol=1e-10, atol=1e-10)
    assert together.abs().min() > 0


def test_both_answers_follow_the_same_prompt_whatever_they_begin_with() -> None:
    """A tokenizer that joins line breaks would take the first one of an answer into the prompt."""
    inner = tokenizers.Tokenizer.from_str(TOKENIZER.text)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\n+|[^\n]+"), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.train_from_iterator(
        ["a\n\n\nb\n\nc\n"] * 50,
        tokenizers.trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=MARKS,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = Tokenizer(inner.to_str())
    row = {"prompt": "hi", "chosen": "\n\nhello", "rejected": "no"}
    schema = R.Preferences(template=R.ChatTemplate())
    stored = InMemoryStore([row], schema, tokenizer, None).row(0)
    for name in ("chosen", "rejected"):
        assert tokenizer.decode(stored[name], skip_special_tokens=False) == row[name] + "<|im_end|>"
    assert tokenizer.decode(stored["prompt"], skip_special_tokens=False).endswith(
        "<|im_start|>assistant\n"
    )


def test_the_text_of_a_conversation_is_its_messages() -> None:
    (text,) = text_cells({"messages": TALK[:2]}, ("messages",))
    assert text == "be brief\none plus two?"
