"""A damaged file of BPE codes or of sentencepiece's model is refused in one line.

subword-nmt prints two lines and ends the process. Here preparation's check comes first.
"""

from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE

from fairseq_doc.fairseq_patches.wrapping import wrap
from fairseq_doc.preparation.tokenization import make_segmenter


def apply() -> None:
    """Replace the functions that make the segmenters."""
    wrap(SubwordNMTBPE, "__init__", make_subword_nmt)
    wrap(SentencepieceBPE, "__init__", make_sentencepiece)


def make_subword_nmt(make, segmenter, cfg):
    """Check the codes first."""
    _check("subword_nmt", cfg.bpe_codes)
    make(segmenter, cfg)


def make_sentencepiece(make, segmenter, cfg):
    """Check the model first."""
    _check("sentencepiece", cfg.sentencepiece_model)
    make(segmenter, cfg)


def _check(bpe, path):
    if path is not None and "://" not in path:  # fairseq fetches an address
        make_segmenter(bpe, path)
