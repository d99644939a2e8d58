"""What both models do with their mixture: the loss, and the check of what they load."""

from fairseq_doc.models.state_dict import check_state_dict


class MixtureModel:
    """Methods of a fairseq model whose ``decoder.output`` is a
    :class:`fairseq_doc.modules.mixture.MixtureOutput`. It comes first among a model's base classes.
    """

    def token_nll(self, net_output, target, ignore_index, reduction="sum"):
        """-log P(target), natural logarithm.

        Args:
            net_output: what the model returned.
            target: (B, T) word indices.
            ignore_index: targets of this value cost nothing.
            reduction: see :func:`fairseq_doc.ops.reference.mixture_nll`.
        """
        return self.decoder.output.nll(net_output[0], target, ignore_index, reduction)

    def smoothed_nll(self, net_output, target, smoothing, ignore_index):
        """See :meth:`fairseq_doc.modules.mixture.MixtureOutput.smoothed_nll`."""
        return self.decoder.output.smoothed_nll(net_output[0], target, smoothing, ignore_index)

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """As fairseq's.

        Raises:
            FairseqDocError: parameters of another architecture, size or dictionary.
        """
        check_state_dict(self.state_dict(), state_dict)
        return super().load_state_dict(state_dict, strict, model_cfg, args)
