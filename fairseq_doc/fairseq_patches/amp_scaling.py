"""With ``--amp`` gradients are divided by the loss scale once.

torch's GradScaler knows an optimizer by its identity. fairseq unscales the gradients of the torch
optimizer, for clipping, and then lets the scaler step fairseq's wrapper of it. The scaler treats
the wrapper as a different optimizer and divides again. At the first scale, 128, SGD then trains at
1/128 of its learning rate. Here both calls get the torch optimizer.
"""

from fairseq.optim.amp_optimizer import AMPOptimizer


def apply() -> None:
    """Replace the method that steps."""
    AMPOptimizer.step = step_torch_optimizer


def step_torch_optimizer(amp: AMPOptimizer) -> None:
    """A step with the gradients that ``amp.clip_grad_norm`` unscaled; none if they overflowed."""
    amp.scaler.step(amp.optimizer)
    amp.scaler.update()
