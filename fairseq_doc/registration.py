"""Registers everything with fairseq, by the imports below; every entry point imports this file."""

import logging

from fairseq_doc import installation

installation.check()
# On import this task of fairseq advises installing tensorboardX, which is not used here.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from fairseq_doc import fairseq_patches

# First, so that an error in the imports below is printed in one line.
fairseq_patches.apply_all()

from fairseq_doc.ops import matmul

matmul.check_environment()

from fairseq_doc.criterions import doc_cross_entropy  # noqa: F401
from fairseq_doc.models import lstm_doc_lm, lstm_luong_doc, lstm_melis_lm  # noqa: F401
from fairseq_doc.optim import averaged_weights, nt_asgd, plateau  # noqa: F401
from fairseq_doc.tasks import bptt_language_modeling  # noqa: F401
