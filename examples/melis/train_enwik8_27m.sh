#!/usr/bin/env bash
# The LSTM of four layers and 27M parameters on Enwik8, byte by byte (Table 3).
DATA="${DATA:-data-bin/enwik8}" exec "$(dirname "$0")/train_ptb_10m.sh" --arch lstm_melis_lm_enwik8_27m \
    --lr 0.00203 --l2 7.5e-6 --adam-betas "(0.0,0.99)" --adam-eps 1e-5 --batch-size 128 --bptt 50 \
    --updates-per-epoch 400 --drop-at 450 --max-checks 500 --lr-patience 13 --stop-patience 15 --stop-ramp 30 \
    --save-dir checkpoints/melis_enwik8_27m "$@"
