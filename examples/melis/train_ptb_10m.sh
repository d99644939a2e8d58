#!/usr/bin/env bash
# The LSTM of one layer and 10M parameters on Penn Treebank (Melis et al., 2018, Table 1), with the settings of
# deepmind/lamb. DATA is the folder that fairseq-doc prepare-lm wrote. Further options go to fairseq-train and override
# these.
set -euo pipefail
fairseq-train "${DATA:-data-bin/ptb}" --user-dir fairseq_doc \
    --task bptt_language_modeling --bptt 35 --updates-per-epoch 100 \
    --arch lstm_melis_lm_ptb_10m \
    --criterion doc_cross_entropy --sentence-avg --l2 1.24e-4 \
    --optimizer adam --adam-betas "(0.0,0.999)" --adam-eps 1e-9 --lr 0.00418 --clip-norm 10 \
    --lr-scheduler plateau --lr-shrink 0.1 --lr-patience 26 --drop-at 900 --max-checks 1000 \
    --stop-patience 30 --stop-ramp 60 \
    --batch-size 64 --batch-size-valid 32 --eval-window 4000 --seed 1 --num-workers 0 \
    --distributed-world-size 1 \
    --save-dir checkpoints/melis_ptb_10m --save-interval 10 --no-epoch-checkpoints \
    --best-checkpoint-metric nll_loss --log-format simple --log-interval 100 "$@"
