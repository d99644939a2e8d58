"""A damaged file of BPE codes or of sentencepiece's model is refused in one line.

With ``--bpe`` fairseq-interactive and fairseq-generate give the file to subword-nmt, which prints
two lines and ends the process, or to sentencepiece. Here it is checked first, as preparation checks
it.
"""

import functools

from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE

from fairseq_doc.preparation.tokenization import make_segmenter


def apply() -> None:
    """Replace the functions that make the segmenters."""
    for kind, bpe, option in (
        (SubwordNMTBPE, "subword_nmt", "bpe_codes"),
        (SentencepieceBPE, "sentencepiece", "sentencepiece_model"),
    ):
        kind.__init__ = _with_checked_file(kind.__init__, bpe, option)


def _with_checked_file(make, bpe, option):
    @functools.wraps(make)
    def __init__(self, cfg):
        path = getattr(cfg, option)
        if path is not None and "://" not in path:  # fairseq fetches an address
            make_segmenter(bpe, path)
        make(self, cfg)

    return __init__
