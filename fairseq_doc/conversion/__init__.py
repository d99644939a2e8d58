"""Checkpoints made of others; importing any file registers the package with fairseq."""

from fairseq_doc import registration  # noqa: F401
