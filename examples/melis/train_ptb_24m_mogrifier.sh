#!/usr/bin/env bash
# The Mogrifier LSTM of two layers and 24M parameters on Penn Treebank (Melis, Kocisky and Blunsom, 2020), with the
# settings of deepmind/lamb.
exec "$(dirname "$0")/train_ptb_10m.sh" --arch lstm_melis_lm_ptb_24m_mogrifier --lr 0.0023 --l2 2.52e-4 \
    --optimizer averaged_adam --adam-eps 1e-8 --average-patience 50 --average-at 800 \
    --lr-patience 1000 --drop-at 0 --stop-patience 0 --stop-ramp 0 \
    --bptt 70 --updates-per-epoch 200 --save-dir checkpoints/melis_ptb_24m_mogrifier "$@"
