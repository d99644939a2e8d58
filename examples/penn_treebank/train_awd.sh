#!/usr/bin/env bash
# A plain AWD-LSTM (Merity et al., 2018): a single softmax of the last layer.
exec "$(dirname "$0")/train.sh" --arch lstm_awd_lm_ptb --doc-components 0,0,0,1 --lr 30 --batch-size 20 \
    --save-dir checkpoints/ptb_awd "$@"
