#!/usr/bin/env bash
# The LSTM of four layers and 46M parameters on Enwik8 (Table 3).
exec "$(dirname "$0")/train_enwik8_27m.sh" --arch lstm_melis_lm_enwik8_46m --lr 0.00218 --l2 0 \
    --save-dir checkpoints/melis_enwik8_46m "$@"
