#!/usr/bin/env bash
# The published headline run with i_2 = i_3 = 2 (Table 10). DATA is the folder that fairseq-doc
# prepare-headline wrote. Further options go to fairseq-train and override these.
export DATA="${DATA:-data-bin/gigaword}" SRC=src TGT=tgt
exec "$(dirname "$0")/../iwslt16/train.sh" --arch lstm_luong_doc_gigaword --clip-norm 1 \
    --save-dir checkpoints/gigaword/doc "$@"
