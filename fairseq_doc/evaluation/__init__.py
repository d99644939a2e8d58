"""Importing any part of this folder registers the package with fairseq: it reads checkpoints."""

from fairseq_doc import registration  # noqa: F401
