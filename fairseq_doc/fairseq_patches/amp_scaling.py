"""With ``--amp``, gradients are divided by the loss scale only once.

torch's GradScaler identifies an optimizer by its ``id``. For clipping, fairseq unscales the
gradients of the torch optimizer, but then passes its own wrapper to the scaler, which divides again:
SGD starts at 1/128 of its learning rate. Here both calls receive the torch optimizer.
"""

from fairseq.optim.amp_optimizer import AMPOptimizer

from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(AMPOptimizer, "step")
def step_torch_optimizer(step, amp):
    """Step with the gradients unscaled by ``amp.clip_grad_norm``, unless they overflowed."""
    amp.scaler.step(amp.optimizer)
    amp.scaler.update()
