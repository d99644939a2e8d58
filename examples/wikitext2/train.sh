#!/usr/bin/env bash
# The published WikiText-2 run (Tables 2 and 8). DATA is the folder that fairseq-doc prepare-lm wrote.
# Further options go to fairseq-train and override these.
export DATA="${DATA:-data-bin/wikitext2}"
exec "$(dirname "$0")/../penn_treebank/train.sh" --arch lstm_doc_lm_wt2 --max-length-delta 20 --lr 15 \
    --batch-size 15 --seed 1882 --save-dir checkpoints/wikitext2 "$@"
