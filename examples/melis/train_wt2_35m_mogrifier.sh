#!/usr/bin/env bash
# The Mogrifier LSTM of two layers and 35M parameters with a mixture of two softmaxes on WikiText-2 (Melis, Kocisky
# and Blunsom, 2020), with the settings of deepmind/lamb.
DATA="${DATA:-data-bin/wikitext2}" exec "$(dirname "$0")/train_ptb_24m_mogrifier.sh" \
    --arch lstm_melis_lm_wt2_35m_mogrifier --lr 0.00329 --l2 1.90e-4 \
    --save-dir checkpoints/melis_wt2_35m_mogrifier "$@"
