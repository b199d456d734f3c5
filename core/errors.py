"""Errors that reach a person: each carries one sentence saying what happened, which value, and what to do."""


class SpecLensError(Exception):
    """Base of every error whose message is written for the user. Never shows a traceback on a page."""


class BadInput(SpecLensError, ValueError):
    """A value a person gave cannot be used (empty prompt, γ = 0, unknown option …). Exit code 2 on the command line."""


class ModelUnavailable(SpecLensError):
    """A model can't be loaded: not on this machine and no network, unsupported cache, mismatched vocabularies."""


class PeerUnavailable(SpecLensError):
    """What a benchmark compares with isn't installed here: another engine, or the prompts."""


class EngineFault(SpecLensError):
    """Decoding broke inside a run (NaN logits, out of memory, a lost worker). The run is stored as failed."""


class StorageUnavailable(SpecLensError):
    """The database can't be opened or written (locked by another process, full disk, newer schema)."""
