"""Direct Output Connection (Takase, Suzuki, Nagata; EMNLP 2018) as a fairseq plugin.

The data goes through the files in this order, and each imports only from what lies before it:

    errors.py                        errors that the user can correct, each a message of one line
    installation.py                  whether torch and fairseq can be used
    interruptions.py                 how SIGTERM ends a command
    fairseq_warnings.py              hides warnings about fairseq's own code
    options.py                       options as fields of dataclasses -> parser, settings
    files.py                         lines of UTF-8 files in and out
    json_text.py                     results as JSON
    checksums.py                     SHA256SUMS of a data folder
    preparation/                     text and trees -> binarised data
        tokenization.py              Moses, BPE and its models, reserved symbols
        data_folder.py               a folder that is written whole or not at all; its settings
        binarisation.py              fairseq-preprocess, and what it binarised
        text_form.py                 plain text <-> words, units or bytes, by the data folder
        byte_text.py                 bytes -> dictionary and binarised splits
        raw_counts.py                lines, words, characters and bytes of a text as written
        pipeline.py                  clean text of one side or two -> units -> binarised data
        parallel_text.py             raw pairs -> clean, tokenised pairs -> data
        pydoc_text.py                the help texts that come with every Python
        corpora.py                   which text, prepared how; published counts
        language_model.py            text -> one stream of words or bytes
        trees.py                     trees in brackets
        symbols.py                   trees -> symbols of a language model or a parser
        treebank.py                  trees -> streams and pairs of symbols
    data/bptt_stream.py              stream -> columns -> (source, target) windows
    ops/processor.py                 the processor's instructions for matrix products
    ops/matmul.py                    matrix products by the fastest kernel in torch
    ops/mixture.py                   the tensors that define a mixture
    ops/reference.py                 the mixture NLL in its plain form: the definition
    ops/mixture_chunks.py            how many tokens are computed at once
    ops/gradient_sampling.py         which rows of the mixture's gradients are computed
    ops/row_softmax.py               softmaxes of rows of logits, and sums of exp
    ops/chunked_loss.py              the mixture's loss and gradients, tokens in chunks
    ops/tiled_loss.py                the same for a large vocabulary, in tiles of rows and words
    ops/mixture_nll.py               the NLL with its own backward, by one of these two
    ops/mixture_log_probs.py         log P of every word in chunks
    ops/cell.py                      the interface of a recurrent cell
    ops/gated_cell.py                a step of an LSTM or RHN and its gradients
    ops/nas_cell.py                  a step of the NAS cell and its gradients
    ops/recurrence.py                one of these cells over a window, with its own backward
    ops/mogrifier.py                 a Mogrifier LSTM over a window, with its own backward
    ops/input_feeding.py             a Luong decoder's recurrence, with its own backward
    modules/dropout.py               locked, embedding and weight dropout
    modules/lstm.py                  one LSTM layer: replaced weights, bfloat16, a Mogrifier's gates
    modules/awd_lstm.py              state in; every layer's output and the state out
    modules/recurrent_stack.py       layers of equal width, whose outputs are added up
    modules/bilstm.py                embedded source -> memory, the decoder's first state
    modules/attentional_lstm.py      embedded target -> every layer's output, attention
    modules/embedding_file.py        embeddings from a text file, and into one
    modules/mixture.py               layer outputs -> component vectors, log weights -> P
    fairseq_patches/                 every change made to fairseq itself, with its reason
    models/state_dict.py             whether a checkpoint fits a model
    models/mixture_model.py          what all models share: options, presets, scores, the loss
    models/grown.py                  a mixture that starts as a trained single component
    models/language_model.py         the state carried over windows, scores
    models/lstm_doc_lm.py            config, decoder, language model, presets
    models/lstm_melis_lm.py          config, decoder, language model of Melis et al., presets
    models/lstm_luong_doc.py         config, encoder, decoder, encoder-decoder, presets
    optim/training_stages.py         validation losses -> when to average, restart, stop
    optim/averaged_weights.py        optimizers that average a model's weights; Adam, then averaging
    optim/nt_asgd.py                 SGD, averaging, fine-tuning stages
    optim/plateau.py                 validation losses -> a lower learning rate, averaging, the end
    tasks/bptt_language_modeling.py  options, dictionary, ordered batches, carried state, evaluation
    criterions/doc_cross_entropy.py  NLL + beta + AR + TAR, logged apart
    registration.py                  imports what fairseq registers
    conversion/average.py            several checkpoints -> the mean of their weights
    conversion/foreign.py            tensors of awd-lstm-lm, mos, fastai -> a checkpoint
    evaluation/ensemble.py           checkpoints -> models whose probabilities are averaged
    evaluation/progress.py           progress bars, where a command asks for them
    adaptation/monte_carlo.py        probabilities as means over samples of dropout
    adaptation/cache.py              neural cache: words that followed similar states are likelier
    adaptation/gradient_statistics.py  how large a model's gradients are on its training text
    adaptation/dynamic.py            models that learn from the text they are scored on
    evaluation/scorer.py             log P of each target, with any of the adaptations above
    evaluation/perplexity.py         a split, the state carried over it; the best settings on it
    evaluation/scoring.py            plain text -> log-probabilities of its sentences
    evaluation/surprisals.py         scores of tokens -> scores of the words as written, or of spans
    evaluation/minimal_pairs.py      which of two sentences is likelier; accuracy by kind
    evaluation/prefix_tree.py        sequences that begin alike -> their log-probabilities
    evaluation/sampling.py           a prompt -> text drawn from the models
    evaluation/translation.py        plain text -> its translations, by fairseq's beam search
    evaluation/hub_interface.py      ``from_pretrained``: all of this from Python
    analysis/rank.py                 numerical rank of the log-probability matrix (Table 5)
    analysis/components.py           weights (Table 4) and posteriors of the components of a mixture
    analysis/learning_curves.py      fairseq's logs -> perplexities (Figure 2); a band of several seeds
    analysis/plotting.py             plots of curves, weights, attention, components
    scoring/generated.py             reads fairseq-generate's output
    scoring/hypotheses.py            hypotheses -> plain text, beside its references
    scoring/metrics.py               metrics from statistics that add up over sentences
    scoring/nbest_lists.py           reads n-best lists of recognisers and translators
    scoring/rescoring.py             language models' scores of n-best lists; choice, tuned weights
    scoring/decoding.py              the best beam and length penalty by a metric
    scoring/systems.py               BLEU, chrF, ROUGE; whether systems differ: bootstrap resampling
    parsing/nbest.py                 n-best lists of trees: read as parsers print them, written
    parsing/bracketing.py            bracketing F1, as EVALB computes it
    parsing/reranking.py             such lists as symbols of a language model (Table 11)
    parsing/outputs.py               an encoder-decoder's outputs -> lists of trees
    tuning/                          which options of a training are best
        settings.py                  options of a tuning; settings as words of a command line
        space.py                     a YAML file -> Optuna's distributions, and its samplers
        command.py                   the command line that is tuned, read by fairseq's parser
        limits.py                    which options let a training last longer
        training.py                  one training: process, folder, log -> its value; several at once
        storage.py                   a study in Optuna's storages, and what it was made with
        tuner.py                     Optuna's optimisation around one training
        rerun.py                     a trial with other seeds -> the spread of its value
        report.py                    a study -> best command, table, JSON, plots
        systems.py                   usual systems, and those of a command line
        comparison.py                several systems, each with several seeds -> a table
    export/                          a language model as an ONNX file
        tokens.py                    forms of the model; a recogniser's tokens <-> our words
        graph.py                     nodes and weights of an ONNX graph
        layers.py                    layers and mixture as nodes
        model.py                     a language model in each form: inputs, outputs, metadata
        file.py                      a checked file, in 8 bits too
    cli/                             ``fairseq-doc``, one file a command, imported when it is called

Importing this package alone imports neither torch nor fairseq, so that ``fairseq_doc.ops`` and
``fairseq_doc.modules`` serve any torch model. ``--user-dir fairseq_doc``, :func:`register`, a
command or loading a checkpoint registers the models, task, criterion and optimizer, and changes
fairseq. Importing a single file registers only what it defines, and changes nothing in fairseq.
"""

import os
import sys

__version__ = "1.0.0"


def register() -> None:
    """Register everything with fairseq, as ``--user-dir fairseq_doc`` does. Calling it again does
    nothing."""
    from fairseq_doc import registration  # noqa: F401
    from fairseq_doc.evaluation import hub_interface  # noqa: F401  # for from_pretrained


def _is_this_folder(path: str) -> bool:
    return os.path.exists(path) and os.path.samefile(path, os.path.dirname(__file__))


class _PackagePath(list):
    """The package's ``__path__``. If the package has already been imported, fairseq only checks
    that the folder of ``--user-dir`` is in it. This check accepts every spelling of the folder's
    path, and registers everything."""

    def __contains__(self, folder):
        is_ours = _is_this_folder(folder)
        if is_ours:
            register()
        return is_ours


__path__ = _PackagePath(__path__)
# fairseq adds the folder of --user-dir to ``memo`` before it imports it: this may be that import.
_import_user_module = getattr(sys.modules.get("fairseq.utils"), "import_user_module", None)
if any(map(_is_this_folder, getattr(_import_user_module, "memo", ()))):
    register()
