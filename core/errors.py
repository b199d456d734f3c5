"""Errors for the user: each message is one sentence with what happened, which value, and what to do."""


class SpecLensError(Exception):
    """Base of every error whose message is written for the user; pages show it without a traceback."""


class BadInput(SpecLensError, ValueError):
    """A value from the user can't be used (empty prompt, γ = 0, unknown option …). Exit code 2 on the command line."""


class ModelUnavailable(SpecLensError):
    """A model can't be loaded: not on this machine and no network, unsupported cache, mismatched vocabularies."""


class PeerUnavailable(SpecLensError):
    """A benchmark needs something that isn't installed: another engine, or a set of prompts."""


class EngineFault(SpecLensError):
    """Decoding broke inside a run (NaN logits, out of memory, a lost worker). The run is stored as failed."""


class StorageUnavailable(SpecLensError):
    """The database can't be opened or written (locked by another process, full disk, newer schema)."""
