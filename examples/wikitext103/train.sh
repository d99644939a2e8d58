#!/usr/bin/env bash
# WikiText-103 with the size of the model for WikiText-2. DATA is the folder that fairseq-doc prepare-lm wrote.
# Further options go to fairseq-train and override these.
set -euo pipefail
fairseq-train "${DATA:-data-bin/wikitext103}" --user-dir fairseq_doc \
    --task bptt_language_modeling --bptt 70 --max-length-delta 20 \
    --arch lstm_doc_lm_wt2 --doc-components 0,0,5,15 \
    --embed-dropout 0 --input-dropout 0.1 --hidden-dropout 0.1 --output-dropout 0.1 \
    --component-dropout 0.1 --weight-dropout 0.1 \
    --matmul-precision bfloat16 \
    --criterion doc_cross_entropy --doc-balance published --doc-lambda 0.001 --gradient-sampling 0.05 \
    --optimizer nt_asgd --lr-scheduler nt_asgd --lr 15 --nonmono 2 --weight-decay 0 --clip-norm 0.25 \
    --batch-size 60 --batch-size-valid 10 --max-epoch 14 --seed 1 --num-workers 0 --distributed-world-size 1 \
    --save-dir checkpoints/wikitext103 --no-epoch-checkpoints --save-interval-updates 1000 --keep-interval-updates 1 \
    --log-format simple --log-interval 100 "$@"
