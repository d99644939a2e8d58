"""With ``--amp`` gradients are divided by the loss scale once.

torch's GradScaler knows an optimizer by its identity. fairseq unscales the torch optimizer's
gradients, for clipping, and then lets the scaler step its wrapper of it, so that the scaler divides
again: SGD starts at 1/128 of its learning rate. Here both calls get the torch optimizer.
"""

from fairseq.optim.amp_optimizer import AMPOptimizer


def apply() -> None:
    """Replace the method that steps."""
    AMPOptimizer.step = step_torch_optimizer


def step_torch_optimizer(amp: AMPOptimizer) -> None:
    """Step with the gradients that ``amp.clip_grad_norm`` unscaled; not after an overflow."""
    amp.scaler.step(amp.optimizer)
    amp.scaler.update()
