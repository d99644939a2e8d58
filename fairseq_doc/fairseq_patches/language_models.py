"""Language models that carry their state are refused where it would silently be dropped.

``fairseq-eval-lm`` without ``--task`` starts every block from a zero state, which gives a higher
perplexity; ``fairseq-generate`` and ``fairseq-interactive`` cannot carry the state.
"""

import sys

from fairseq import checkpoint_utils

from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.launchers import command_of
from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(checkpoint_utils, "load_model_ensemble_and_task")
def load_for_its_task(load, filenames, arg_overrides=None, task=None, *args, **kwargs):
    """The models, the settings of the last checkpoint, and the task."""
    models, cfg, task_used = load(filenames, arg_overrides, task, *args, **kwargs)
    carry_state = any(hasattr(getattr(model, "decoder", None), "carried_state") for model in models)
    if carry_state and task is not None:  # None: the checkpoint's own, as for --lm-path
        command = command_of(sys.argv)
        given = getattr(task.cfg or task.args, "_name", None)  # args: a LegacyFairseqTask
        if command in ("generate", "interactive"):
            raise FairseqDocError(
                f"fairseq-{command} translates, and {cfg.model._name} is a language model: "
                "fairseq-doc generate draws text from it"
            )
        if cfg.task._name == TASK and given != TASK:
            raise FairseqDocError(
                f"{filenames[-1]} was trained with --task {TASK}, which carries the state over the "
                f"text: give that task; got {given}, which starts every block from a zero state"
            )
    return models, cfg, task_used
