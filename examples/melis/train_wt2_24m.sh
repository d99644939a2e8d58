#!/usr/bin/env bash
# The LSTM of two layers and 24M parameters on WikiText-2 (Table 2).
DATA="${DATA:-data-bin/wikitext2}" exec "$(dirname "$0")/train_ptb_10m.sh" --arch lstm_melis_lm_wt2_24m \
    --lr 0.00246 --l2 3.78e-5 --updates-per-epoch 200 --save-dir checkpoints/melis_wt2_24m "$@"
