"""What a folder holds that was not read: one note on import names it.

A format reads files and keys through its `Checkpoint`, which records them. What is left is either known to
change nothing (the tables below, and `Format.harmless` for the configuration of a format) or named.
"""

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from heedful.interop.checkpoint import CONFIG, Checkpoint, Settings
from heedful.interop.generation import GENERATION
from heedful.interop.tokenizer_files import SETTINGS, SPECIAL_TOKENS, TOKENIZER

MAX_NAMED = 12
"""Maximum number of files, and of keys of a file, that a note names."""

ANY: Final = None
"""Every value of a key is harmless."""

Harmless = Mapping[str, Collection[object] | None]
"""Keys that change nothing: with these values, or with any value (`ANY`); null always counts as missing."""

_FILES = (
    "*.md", "LICENSE*", "NOTICE*", ".*", "*/.*",
    # Vocabularies and merges that a tokenizer.json contains.
    "vocab.txt", "vocab.json", "merges.txt",
    # The same tokenizer as heedful's, and heedful's in the folders of both sides.
    TOKENIZER, f"source/{TOKENIZER}", f"target/{TOKENIZER}", f"source/{SETTINGS}", f"target/{SETTINGS}",
)  # fmt: skip
"""Patterns of the names of files without meaning for the model."""


def _any(*keys: str) -> dict[str, Collection[object] | None]:
    return dict.fromkeys(keys, ANY)


GENERATION_KEYS: Harmless = {
    **_any(
        "transformers_version", "_from_model_config", "use_cache", "cache_implementation",
        "output_attentions",
        "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate", "pad_token_id",
        "bos_token_id", "forced_eos_token_id", "compile_config", "disable_compile",
    ),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "typical_p"), (1.0,)),
    **dict.fromkeys(("min_length", "min_new_tokens", "no_repeat_ngram_size"), (0,)),
    **dict.fromkeys(("encoder_no_repeat_ngram_size", "epsilon_cutoff", "eta_cutoff"), (0,)),
    **dict.fromkeys(("diversity_penalty", "penalty_alpha"), (0,)),
    **dict.fromkeys(("num_beam_groups", "num_return_sequences"), (1,)),
    **dict.fromkeys(("remove_invalid_values", "renormalize_logits", "token_healing", "low_memory"), (False,)),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "stop_strings"), ((), [])),
}  # fmt: skip
"""Keys of generation_config.json; ``forced_eos_token_id`` only ends texts at the maximum length."""

CONFIG_KEYS: Harmless = {
    **_any(
        "_name_or_path", "name_or_path", "architectures", "model_type", "torch_dtype", "dtype",
        "transformers_version", "use_cache", "initializer_range", "initializer_factor", "init_std",
        "output_attentions", "output_hidden_states", "return_dict", "torchscript", "use_bfloat16",
        "gradient_checkpointing", "is_encoder_decoder", "finetuning_task", "attn_implementation",
        "_attn_implementation", "_attn_implementation_autoset", "tokenizer_class", "label2id",
        "id2label", "num_labels", "_num_labels", "problem_type",  # read where there is a head for labels
        "chunk_size_feed_forward", "sep_token_id", "task_specific_params", "tf_legacy_loss",
    ),
    **dict.fromkeys(("is_decoder", "add_cross_attention", "tie_encoder_decoder"), (False,)),
    "pruned_heads": ({},),
    "prefix": ("",),
}  # fmt: skip
"""Keys of config.json that do not affect what a model computes from token ids."""

TOKENIZER_KEYS: Harmless = {
    **_any(
        "tokenizer_class", "name_or_path", "special_tokens_map_file", "tokenizer_file",
        "transformers_version",
        "model_input_names", "padding_side", "backend", "is_local", "local_files_only", "use_fast", "legacy",
        "processor_class", "errors", "trust_remote_code", "_commit_hash",
        # Arguments of a call, which a tokenizer saves but does not apply by itself.
        "max_length", "stride", "padding", "truncation", "truncation_strategy", "pad_to_multiple_of",
        "pad_token_type_id", "max_len", "truncation_side",
        # Names of languages, which only a caller reads.
        "source_lang", "target_lang", "sp_model_kwargs", "return_tensors",
    ),
    **dict.fromkeys(("additional_special_tokens", "extra_special_tokens"), ((), [], {})),
    **dict.fromkeys(("never_split", "model_specific_special_tokens"), ((), [], {})),
    **dict.fromkeys(("add_bos_token", "add_eos_token", "split_special_tokens"), (False,)),
    "clean_up_tokenization_spaces": (False,),
    "do_basic_tokenize": (True,),
}  # fmt: skip
"""Keys of tokenizer_config.json."""

_KEYS: Mapping[str, Harmless] = {
    CONFIG: CONFIG_KEYS,
    GENERATION: GENERATION_KEYS,
    SETTINGS: TOKENIZER_KEYS,
    SPECIAL_TOKENS: TOKENIZER_KEYS,
}


def unread_notes(checkpoint: Checkpoint, harmless: Mapping[str, Harmless]) -> list[str]:
    """Return a note that names what was not read and may change results; none if there is nothing.

    Args:
        checkpoint: the folder, after everything was read.
        harmless: further keys of each file that change nothing.
    """
    parts = [_listed([*_unread_files(checkpoint)])]
    for name, settings in checkpoint.all_settings.items():
        known = {**_KEYS.get(name, {}), **harmless.get(name, {})}
        if name == CONFIG:  # older folders have the settings of generation here
            known = {**GENERATION_KEYS, **known}
            if checkpoint.has(GENERATION):
                known |= dict.fromkeys(_GENERATION_ELSEWHERE, ANY)
        keys = _listed([*unread_keys(settings, known)])
        parts.append(f"{name}: {keys}" if keys else "")
    named = "; ".join(part for part in parts if part)
    return [f"not read: {named}"] if named else []


_GENERATION_ELSEWHERE = (
    *GENERATION_KEYS,
    *("max_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "temperature", "top_k"),
    *("top_p", "min_p", "length_penalty", "forced_bos_token_id", "exponential_decay_length_penalty"),
)
"""Settings of generation, which are ignored in config.json if there is a generation_config.json."""


def unread_keys(settings: Settings, harmless: Harmless) -> Iterator[str]:
    """Yield the keys of a file that have a value, were not read, and are not harmless."""
    for key, value in sorted(settings.values.items()):
        values = harmless.get(key, ())
        is_harmless = values is ANY or value in values
        if value is not None and key not in settings.keys_read and not is_harmless:
            yield key


def _unread_files(checkpoint: Checkpoint) -> Iterator[str]:
    read = {path.relative_to(checkpoint.path).as_posix() for path in checkpoint.files_read}
    for path in sorted(_files(checkpoint.path)):
        name = path.relative_to(checkpoint.path).as_posix()
        if name not in read and not any(fnmatch(name, pattern) for pattern in _FILES):
            yield name


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of its subfolders, without hidden ones; links are not followed."""
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif path.is_file():
            yield path


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
