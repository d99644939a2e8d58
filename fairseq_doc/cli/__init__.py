"""Importing any part of this folder registers the whole package with fairseq."""

from fairseq_doc import registration  # noqa: F401
