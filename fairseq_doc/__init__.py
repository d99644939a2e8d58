"""Direct Output Connection (Takase, Suzuki, Nagata; EMNLP 2018) as a fairseq plugin.

``--user-dir fairseq_doc`` imports this package; importing it registers everything below. The data
goes through the files in this order, and each imports only from what lies before it (but for
``LSTMDocLanguageModel.from_pretrained``, which calls the last of them):

    errors.py                        one line for what the user can mend
    data/text.py                     lines of UTF-8 files
    data/bptt_stream.py              stream -> columns -> (source, target) windows
    data/batches.py                  sentences -> batches: the last one too; none at the exit
    ops/products.py                  matrix products by the fastest kernel torch carries
    ops/reference.py                 the mixture NLL in its plain form: the definition
    ops/mixture_nll.py               the same, chunked, with its own backward
    ops/input_feeding.py             a Luong decoder's recurrence, with its own backward
    modules/dropout.py               locked, embedding and weight dropout
    modules/lstm.py                  one LSTM layer with other weights for one call
    modules/awd_lstm.py              state in; every layer's output and the state out
    modules/bilstm.py                embedded source -> memory, the decoder's first state
    modules/luong_attention.py       query, memory, mask -> attentional vector, weights
    modules/luong_decoder.py         embedded target -> every layer's output, attention
    modules/pretrained.py            embeddings from a file
    modules/mixture.py               layer outputs -> component vectors, log weights -> P
    checkpoints.py                   which types a checkpoint may hold, refusals, whole copies
    presets.py                       named settings of a model
    models/lstm_doc_lm.py            config, decoder, language model, presets
    models/lstm_luong_doc.py         config, encoder, decoder, encoder-decoder, presets
    optim/trigger.py                 from validation losses: when to average, restart, stop
    optim/nt_asgd.py                 SGD, averaging, fine-tuning stages
    tasks/bptt_language_modeling.py  dictionary, ordered batches, carried state, evaluation
    criterions/doc_cross_entropy.py  NLL + beta + AR + TAR, logged apart
    evaluation/ensemble.py           checkpoints -> models whose probabilities are averaged
    evaluation/perplexity.py         the evaluator: a split, the state carried over it
    evaluation/scoring.py            plain text -> log-probabilities of its sentences
    evaluation/prefix_tree.py        sentences that begin alike -> their log-probabilities
    evaluation/sampling.py           a prompt -> text drawn from the models
    evaluation/rank.py               numerical rank of the log-probability matrix (Table 5)
    evaluation/weights.py            mean weights of the components (Table 4)
    evaluation/learning_curves.py    fairseq's logs -> validation perplexities (Figure 2)
    evaluation/attention.py          a sentence -> its translation and what it attended to
    evaluation/hypotheses.py         fairseq-generate's output -> plain text
    evaluation/pictures.py           curves, weights and attention as pictures
    evaluation/pretrained.py         ``from_pretrained``: all that from Python
    parsing/trees.py                 trees in brackets
    parsing/symbols.py               trees <-> symbols of a language model or a parser
    parsing/nbest.py                 n-best lists of trees, as parsers print them
    parsing/bracketing.py            bracketing F1, as EVALB computes it
    parsing/reranking.py             lists, scored by language models and by the parser (Table 11)
    parsing/generated.py             an encoder-decoder's outputs -> lists of trees
    cli/                             ``fairseq-doc``, one file a subcommand
"""

import logging
import os

# Its only message at import, to install tensorboardX, does not concern this package.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

import fairseq

from fairseq_doc.errors import print_usage_errors_in_one_line

__version__ = "0.3.0"

# fairseq also finds this package as <fairseq's folder>/../fairseq_doc, and takes two spellings of
# one folder for two packages of one name unless both are listed.
_beside_fairseq = os.path.join(os.path.dirname(fairseq.__file__), "..", __name__)
if os.path.exists(_beside_fairseq) and os.path.samefile(_beside_fairseq, __path__[0]):
    __path__.append(_beside_fairseq)

print_usage_errors_in_one_line()

from fairseq_doc import checkpoints  # noqa: F401
from fairseq_doc.criterions import doc_cross_entropy  # noqa: F401
from fairseq_doc.data import batches  # noqa: F401
from fairseq_doc.models import lstm_doc_lm, lstm_luong_doc  # noqa: F401
from fairseq_doc.optim import nt_asgd  # noqa: F401
from fairseq_doc.tasks import bptt_language_modeling  # noqa: F401
