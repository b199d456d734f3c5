"""Loading of pairs: from a specification to a :class:`core.models.pair.Pair` on a device.

Nothing is trusted: only safetensors are read, a model's own code never runs, and a model that can't decode here
(``core/models/compatibility.py``) or doesn't fit into memory is refused before any weight is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as library_logging

from core.cache.rotary import rereads_at
from core.errors import ModelUnavailable
from core.faults import free_memory, is_out_of_memory
from core.models import packing, threads
from core.models.compatibility import attention, check_vocabularies, emitted, text_config
from core.models.int8 import quantise
from core.models.pair import LoadedModel, Pair
from core.models.probe import proven
from core.models.sources import Source, first_line, look
from core.models.text import TextCodec
from core.pairs import embedded, files, folders, memory
from core.pairs.description import describe, read_weights
from core.pairs.folders import Progress, quiet
from core.pairs.presets import split
from core.types import PairSpec

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "int8": torch.float32}
"""Data types of embeddings, norms, activations and cache; in int8 only linear layers have another one."""


def load_pair(spec: PairSpec, progress: Progress = quiet) -> Pair:
    """Loads a pair; ``progress`` is called with a message and the share done in [0, 1].

    Raises BadInput for a name that can't be read, ModelUnavailable when the models are absent, unsupported, too large,
    damaged or of different vocabularies, or when there is no such device.
    """
    library_logging.disable_progress_bar()  # it writes to the terminal, as ``progress`` may
    target_name, draft_name = split(spec.name)
    device = _device(spec)
    dtype = _dtype(spec, device)
    precision = "int8" if spec.precision == "int8" else str(dtype).removeprefix("torch.")
    names = [target_name, draft_name] if draft_name else [target_name]
    sources = [look(name, _part(progress, n, len(names), 0.0, 0.3)) for n, name in enumerate(names)]
    target = sources[0]
    vocab = min(emitted(target.tokenizer.get_vocab()), text_config(target.config).vocab_size)
    for draft in sources[1:]:
        theirs, head = draft.tokenizer.get_vocab(), text_config(draft.config).vocab_size
        check_vocabularies(target.name, target.tokenizer.get_vocab(), draft.name, theirs, vocab, head)
    _check_memory(sources, precision, device)
    models = [
        _load(source, device, dtype, precision, _part(progress, n, len(names), 0.3, 0.95))
        for n, source in enumerate(sources)
    ]
    if device.type == "cpu":
        threads.settle(models[0].network)
        models = [_packed(model, progress) for model in models]
    progress("comparing cache slots with the library's forward", 0.98)
    models = [proven(model, vocab, precision) for model in models]
    text = TextCodec(target.tokenizer, _end_tokens(models[0].network, target.tokenizer), vocab)
    progress("ready", 1.0)
    return Pair(spec.name, models[0], models[1] if draft_name else None, text, device, dtype, precision, vocab)


def _part(progress: Progress, index: int, count: int, start: float, end: float) -> Progress:
    """Progress within the ``index``-th of ``count`` equal parts of the range ``start`` … ``end``."""
    width = (end - start) / count
    return lambda message, share: progress(message, start + width * (index + share))


# -- device and precision -------------------------------------------------------------------------------------------


def _device(spec: PairSpec) -> torch.device:
    if spec.device == "cpu" or (spec.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ModelUnavailable("This machine has no CUDA device that PyTorch can use: choose the device auto or cpu.")
    return torch.device("cuda", torch.cuda.current_device())


def _dtype(spec: PairSpec, device: torch.device) -> torch.dtype:
    """The chosen data type; for auto, bfloat16 on CUDA and float32 on the CPU."""
    if spec.precision == "int8" and device.type != "cpu":
        raise ModelUnavailable("int8 is a precision of the CPU here: choose the device cpu, or another precision.")
    if spec.precision != "auto":
        return _DTYPES[spec.precision]
    if device.type != "cuda":
        return torch.float32
    if not torch.cuda.is_bf16_supported():
        raise ModelUnavailable("This CUDA device has no bfloat16: choose the precision float16 or float32.")
    return torch.bfloat16


def _end_tokens(network: PreTrainedModel, tokenizer: Any) -> set[int]:
    """Ids that end a run: those of the generation configuration (else of the model's) and the tokenizer's."""
    generation = network.generation_config.eos_token_id if network.generation_config is not None else None
    named = [generation if generation is not None else text_config(network.config).eos_token_id, tokenizer.eos_token_id]
    return {i for ids in named for i in (ids if isinstance(ids, list) else [ids]) if i is not None}


# -- the weights ----------------------------------------------------------------------------------------------------


def _check_memory(sources: list[Source], precision: str, device: torch.device) -> None:
    """Raises ModelUnavailable for weights that don't fit, before the operating system would kill the process."""
    models = [describe(source.name, source.folder, source.config.to_dict()) for source in sources]
    for source in sources:
        _check_formats(source)
        _end_ids(source)
    needed = memory.need(models, precision, rows=0).peak
    loaded_as = "float32, from which int8 is made" if precision == "int8" else precision
    cuda = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if cuda else memory.host().free
    if needed is not None and free is not None and needed > free:
        raise ModelUnavailable(
            f"The weights of {' and '.join(source.name for source in sources)} need {needed / 1e9:.1f} GB in "
            f"{loaded_as}, but {free / 1e9:.1f} GB of {'GPU ' if cuda else ''}memory are free: "
            "choose a smaller pair or a shorter precision."
        )


def _check_formats(source: Source) -> None:
    """Raises ModelUnavailable for weights that the configuration doesn't describe, by the headers of their files."""
    stored, text = read_weights(source.name, source.folder), text_config(source.config)
    packed = set(stored.formats) & {"U8", "I32", "I64", "U32"}
    if packed and not getattr(source.config, "quantization_config", None):
        raise ModelUnavailable(
            f"The weights of {source.name} are packed in a format ({', '.join(sorted(packed))}) that its config.json "
            "doesn't name, as 4-bit weights of another runtime are: choose the model's original weights."
        )
    if stored.embedding_rows is not None and stored.embedding_rows < text.vocab_size and not packed:
        raise ModelUnavailable(
            f"The config.json of {source.name} says {text.vocab_size:,} tokens (vocab_size), but its embedding has "
            f"{stored.embedding_rows:,} rows: fetch both from one place."
        )


def _end_ids(source: Source) -> None:
    """Raises ModelUnavailable for end tokens that are no token ids, before any weight is read."""
    for name in ("generation_config.json", "config.json"):
        if (source.folder / name).exists():
            try:
                files.read_json(source.folder / name, files.GenerationConfig)
            except ValueError as error:
                raise ModelUnavailable(f"The model {source.name} {error}: fetch it again.") from None


def _load(source: Source, device: torch.device, dtype: torch.dtype, precision: str, progress: Progress) -> LoadedModel:
    if source.folder == embedded.folder():
        content = embedded.content_hash(source.folder)
    else:
        content = folders.content_hash(source.folder, _part(progress, 0, 2, 0.0, 1.0))
    progress(f"loading weights of {source.name}", 0.5)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source.folder,
            config=source.config,
            dtype=dtype,
            device_map={"": device} if device.type == "cuda" else None,  # straight to the GPU, without a copy in memory
            attn_implementation=attention(source.config, on_cpu=device.type == "cpu"),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:
        if is_out_of_memory(error):
            free_memory()
            raise ModelUnavailable(
                f"Memory of the {device.type.upper()} ran out while loading {source.name}: choose a smaller pair or a "
                "shorter precision, or free the device."
            ) from None
        if "mismatch" in str(error):  # the library prints the tensors and names none in its error
            raise ModelUnavailable(
                f"The weights of {source.name} have other shapes than its config.json says, so they belong to another "
                "model or format: fetch both from one place."
            ) from None
        raise ModelUnavailable(f"The model {source.name} can't be loaded ({first_line(error)}).") from None
    network, report = loaded
    _check_report(source.name, report)
    network.eval().requires_grad_(False)
    head = network.get_output_embeddings().weight.shape[0]
    if precision == "int8":
        quantise(network, source.name)
    progress(f"loaded {source.name}", 1.0)
    context = text_config(network.config).max_position_embeddings
    return LoadedModel(source.name, content, network, context, head, rereads_at=rereads_at(network))


def _check_report(name: str, report: Mapping[str, Any]) -> None:
    """Raises ModelUnavailable when the library filled in or left out tensors: another model would decode."""
    missing, unexpected = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    if missing:
        raise ModelUnavailable(
            f"The weights of {name} are incomplete: {len(missing)} tensors are missing, first {missing[0]}."
        )
    if unexpected:
        raise ModelUnavailable(
            f"The weights of {name} hold {len(unexpected)} tensors that its config.json has no place for, first "
            f"{unexpected[0]}: without them another model would decode. Fetch configuration and weights from one place."
        )


def _packed(model: LoadedModel, progress: Progress) -> LoadedModel:
    progress(f"trying faster layouts of {model.name}", 0.97)
    return replace(model, linears=packing.pack(model.network))
