#!/usr/bin/env bash
# The published translation run with i_2 = i_3 = 2 (Table 9), from SRC (en) to TGT (de). DATA is the folder that
# fairseq-doc prepare-mt wrote. Further options go to fairseq-train and override these.
set -euo pipefail
pair=${SRC:-en}-${TGT:-de}
fairseq-train "${DATA:-data-bin/iwslt16.$pair}" --user-dir fairseq_doc \
    --task translation --source-lang "${SRC:-en}" --target-lang "${TGT:-de}" \
    --arch lstm_luong_doc_iwslt16 --doc-components 0,0,2,2 \
    --criterion doc_cross_entropy --doc-balance published --doc-lambda 0.001 --sentence-avg \
    --optimizer sgd --lr 1.0 --lr-scheduler fixed --force-anneal 10 --lr-shrink 0.5 \
    --clip-norm 2 --batch-size 128 --max-epoch 13 --seed 1 --num-workers 0 --distributed-world-size 1 \
    --save-dir "checkpoints/iwslt16.$pair/doc" --no-epoch-checkpoints \
    --log-format simple --log-interval 200 "$@"
