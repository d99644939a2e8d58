#!/usr/bin/env bash
# A mixture of softmaxes (MoS), 15 components from the last layer, with the dropout rates of DOC.
exec "$(dirname "$0")/train.sh" --arch lstm_mos_lm_ptb --doc-components 0,0,0,15 \
    --save-dir checkpoints/ptb_mos "$@"
