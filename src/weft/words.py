"""Names that other tools use, and what they are called here: one table for options, recipe paths and fields."""
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

LEAST, ALIKE = 3, 0.75                     # letters of a prefix; difflib's ratio below which two names are not alike


class Word(NamedTuple):
    """`places` in order: an option, or a path of a recipe with a value that shows its form. `note` where there is no such place."""
    names: str                             # as people type them, in their short form
    what: str
    places: tuple[str, ...] = ()
    note: str = ""


def blocks(path: str) -> tuple[str, ...]:
    """A path inside every block, of either stack."""
    return tuple(f"model.{stack}.blocks.*.{path}" for stack in ("encoder", "decoder"))


WORDS = (
    Word("lr learning_rate base_lr max_lr peak_lr", "the learning rate", ("optimiser.rate=3e-4", "--rates")),
    Word("weight_decay wd", "the weight decay", ("optimiser.decay=0.01", "optimiser.other.decay=0.01")),
    Word("beta1 beta2 adam_beta1 adam_beta2 adam_betas", "Adam's betas", ("optimiser.betas=[0.9, 0.95]",)),
    Word("epsilon adam_epsilon adam_eps", "Adam's epsilon", ("optimiser.eps=1e-8",)),
    Word("layer_decay layerwise_lr_decay llrd lr_decay", "the layer-wise decay of the learning rate", ("optimiser.layers=0.9",
                                                                                                       "--layer-decay")),
    Word("optim optimizer", "the optimiser", ("optimiser=AdamW",)),
    Word("scheduler lr_scheduler lr_schedule lr_scheduler_type", "the learning rate schedule", ("schedule=Cosine",)),
    Word("warmup warmup_steps num_warmup_steps warmup_iters warmup_ratio", "the warmup steps", ("schedule.warmup=100",)),
    Word("batch_size bs train_batch_size per_device_train_batch_size global_batch_size", "the rows per step",
         ("batch.count=32", "batch.tokens=4096", "--batch")),
    Word("micro_batch_size mbs micro_batch gradient_accumulation_steps gradient_accumulation grad_accum accumulate_grad_batches",
         "the rows per forward pass", ("micro=8",)),
    Word("seq_len seq_length sequence_length max_length max_len max_seq_length max_seq_len block_size context_length",
         "the tokens per row", ("batch.length=128", "--length")),
    Word("max_steps num_steps train_steps total_steps iters iterations max_iters", "the number of steps", ("steps=1000", "--epochs")),
    Word("epochs num_epochs max_epochs num_train_epochs", "the length of training, counted in steps,", ("steps=1000", "--epochs")),
    Word("grad_clip gradient_clip gradient_clip_val max_grad_norm clip_grad clip_grad_norm clip_norm", "gradient clipping", ("clip=1.0",)),
    Word("bf16 fp16 half amp mixed_precision dtype torch_dtype fp32 precision", "the precision",
         ("precision=bf16", "--precision", "--bf16")),
    Word("out output output_dir out_dir save_dir run_dir log_dir logging_dir", "the output", ("--out",)),
    Word("in input input_file input_path", "the input", ("--in",)),
    Word("seed random_seed manual_seed random_state", "the seed", ("seed=1", "--seed")),
    Word("num_workers dataloader_num_workers workers num_proc", "the data loading processes", ("workers=2", "--workers")),
    Word("eval_every eval_steps eval_interval eval_freq val_interval val_check_interval validate_every",
         "the steps between validations", ("evaluate=500",)),
    Word("save_every save_steps save_interval save_freq checkpoint_every checkpoint_interval", "the steps between checkpoints",
         ("save.every=500",)),
    Word("save_total_limit keep_last max_checkpoints", "the number of checkpoints kept", ("save.keep=2",)),
    Word("gradient_checkpointing activation_checkpointing grad_checkpointing recompute", "activation checkpointing", ("recompute=true",)),
    Word("compile torch_compile", "torch.compile", ("compile=true",)),
    Word("ema ema_decay use_ema", "the moving average of the weights", ("average=Moving",)),
    Word("init_from pretrained load_from start_from weights checkpoint ckpt model_name_or_path", "the model to start from",
         ("start=FOLDER",)),
    Word("from_pretrained load_model AutoModel load_checkpoint", "a model's weights", ("load",)),
    Word("label_smoothing label_smoothing_factor", "label smoothing", ("objective.smoothing=0.1",)),
    Word("mask_rate mask_prob mask_probability mlm_probability", "the share of tokens that are masked", ("objective.share=0.15",)),
    Word("vocab vocab_size n_vocab", "the vocabulary size", ("model.source.vocabulary=32000", "tokenizer.vocabulary=32000",
                                                             "--vocabulary")),
    Word("hidden_size d_model n_embd embed_dim hidden_dim model_dim dim", "the model's width", ("model.width=256",)),
    Word("num_heads n_head n_heads num_attention_heads", "the attention heads", blocks("attention.inner.heads=4")),
    Word("num_layers n_layer n_layers num_hidden_layers num_blocks depth", "the number of blocks",
         ("model.encoder.depth=6", "model.decoder.depth=6")),
    Word("intermediate_size d_ff dim_feedforward ffn_dim mlp_dim n_inner", "the feed-forward width",
         blocks("feedforward.inner.hidden=1024")),
    Word("attention_dropout attn_dropout attention_probs_dropout_prob", "the attention dropout", blocks("attention.inner.dropout=0.1")),
    Word("hidden_dropout hidden_dropout_prob resid_dropout residual_dropout dropout", "the dropout of each branch",
         (*blocks("attention.dropout=0.1"), *blocks("feedforward.dropout=0.1"), "--dropout")),
    Word("drop_path stochastic_depth", "stochastic depth", blocks("attention.skip=0.1")),
    Word("norm_first pre_norm post_norm norm_placement", "the place of the norms", blocks("norm=pre")),
    Word("positions max_position_embeddings n_positions n_ctx", "the number of positions", ("model.source.positions.count=512",)),
    Word("max_new_tokens max_tokens max_gen_len", "the number of tokens to generate", ("--most",)),
    Word("num_beams beam_size beam_width beam", "the number of beams", ("--beams",)),
    Word("length_penalty", "the length penalty", ("--alpha",)),
    Word("repetition_penalty", "the repetition penalty", ("--repetition",)),
    Word("num_return_sequences num_samples", "the number of answers", ("--samples", "--best")),
    Word("do_sample sample", "sampling", ("--temperature",)),
    Word("assistant_model draft_model", "the draft model", ("--draft",)),
    Word("pooling pooling_mode", "the pooling", ("--pool", "pool")),
    Word("normalize normalize_embeddings", "normalisation", ("--normalise",)),
    Word("train_file dataset dataset_name data_dir data_path train_data", "the data", ("data.train.paths=[\"FILE\"]", "--data", "--on")),
    Word("valid_file validation_file val_data eval_data dev_file", "the validation data", ("data.valid.paths=[\"FILE\"]", "--dev",
                                                                                           "--valid")),
    Word("wandb report_to logger tensorboard", "logging", ("--tensorboard",)),
    Word("resume resume_from resume_from_checkpoint auto_resume continue restart", "",
         note="a run continues by itself: give the same command again, or weft resume RUN"),
    Word("device cuda gpu gpus n_gpu num_gpus cpu no_cuda use_cpu mps accelerator devices", "",
         note="a GPU is used where PyTorch sees one; CUDA_VISIBLE_DEVICES= hides it, torchrun uses several"),
)


def plain(name: str) -> str:
    """Letters and digits alone, so that --batch-size, batch_size and batchSize are one name."""
    return re.sub(r"[\W_]+", "", name).lower()


TABLE = {plain(name): word for word in WORDS for name in word.names.split()}


def field(place: str) -> str:
    """The last name of a place."""
    return place.partition("=")[0].rpartition(".")[2]


def meant(name: str, known: Iterable[str]) -> str | None:
    """The known name that stands for this one: spelt otherwise, another tool's word, its beginning, or nearly alike; None if none does."""
    by_plain = {plain(own): own for own in reversed(list(known))}
    wanted = plain(name)
    if wanted in by_plain or not wanted:
        return by_plain.get(wanted) if wanted else None
    for place in TABLE[wanted].places if wanted in TABLE else ():
        if plain(field(place)) in by_plain:
            return by_plain[plain(field(place))]
    begin = [own for own in by_plain if own.startswith(wanted)] if len(wanted) >= LEAST else []
    near = begin if len(begin) == 1 else get_close_matches(wanted, by_plain, n=1, cutoff=ALIKE)
    return by_plain[near[0]] if near else None


def suggest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = meant(name, known)
    return f"did you mean {near!r}?" if near else f"there is {', '.join(known)}"


def option(name: str, known: list[str]) -> str:
    """What to type instead of an option that a command does not have."""
    name = name.partition("=")[0]
    word = TABLE.get(plain(name), Word("", ""))
    own = [place for place in word.places if place in known]
    own += [f"--set {place}" for place in word.places if "=" in place and "--set" in known]
    if own:
        return f"set {word.what} with {own[0]}"
    return word.note or suggest(name, known)
