"""With ``--amp`` gradients are divided by the loss scale once.

torch's GradScaler knows an optimizer by its identity. fairseq unscales the torch optimizer's
gradients, for clipping, and then lets the scaler step its wrapper of it, so that the scaler divides
again: SGD starts at 1/128 of its learning rate. Here both calls get the torch optimizer.
"""

from fairseq.optim.amp_optimizer import AMPOptimizer

from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(AMPOptimizer, "step")
def step_torch_optimizer(step, amp):
    """Step with the gradients that ``amp.clip_grad_norm`` unscaled; not after an overflow."""
    amp.scaler.step(amp.optimizer)
    amp.scaler.update()
