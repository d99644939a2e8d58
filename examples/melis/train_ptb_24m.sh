#!/usr/bin/env bash
# The LSTM of four layers and 24M parameters on Penn Treebank, the best of Table 1.
exec "$(dirname "$0")/train_ptb_10m.sh" --arch lstm_melis_lm_ptb_24m --lr 0.00396 --l2 7.45e-5 \
    --save-dir checkpoints/melis_ptb_24m "$@"
