#!/usr/bin/env bash
# Generate headlines of the test split with beam 5, and score them by ROUGE: see ../iwslt16/evaluate.sh.
#   RAW    reference, such as gigaword/test.tgt
#   SCORE  options of fairseq-doc rouge
export SRC=src TGT=tgt METRIC=rouge SCORE=${SCORE:-} DATA=${DATA:-data-bin/gigaword}
export MODEL=${MODEL:-checkpoints/gigaword/${SYSTEM:-doc}/checkpoint_best.pt}
exec "$(dirname "$0")/../iwslt16/evaluate.sh" "$@"
