#!/usr/bin/env bash
# Translate the test split with beam 5, and score it by BLEU.
#   RAW       raw reference, a file with as many lines as the test split
#   SRC, TGT  languages (en and de)
#   SYSTEM    doc (default), i3 or plain: the run to use; or
#   MODEL     a checkpoint, or several for an ensemble: a.pt:b.pt
#   DATA      folder that fairseq-doc prepare-mt wrote
#   OUT       new file for the output
#   METRIC    bleu (default) or rouge
#   SCORE     options of fairseq-doc METRIC (default: --lang $TGT)
# Further options go to fairseq-generate.
set -euo pipefail
fail() { echo "evaluate: $1" >&2; exit 1; }

source=${SRC:-en} target=${TGT:-de}
pair=$source-$target
model=${MODEL:-checkpoints/iwslt16.$pair/${SYSTEM:-doc}/checkpoint_best.pt}
output=${OUT:-$(dirname "${model%%:*}")/generate-test.$pair.txt}
[ -n "${RAW:-}" ] || fail "expected RAW=reference, such as RAW=iwslt16/test.$target"
[ -f "$RAW" ] || fail "expected a reference, got no file $RAW"
IFS=: read -ra checkpoints <<<"$model"
for file in "${checkpoints[@]}"; do [ -f "$file" ] || fail "expected a checkpoint, got no file $file"; done
[ ! -e "$output" ] || fail "$output exists; remove it, or name another file: OUT=..."

fairseq-generate "${DATA:-data-bin/iwslt16.$pair}" --user-dir fairseq_doc \
    --task translation --source-lang "$source" --target-lang "$target" \
    --path "$model" --gen-subset test --beam 5 --batch-size 64 --num-workers 0 "$@" >"$output.part"
mv "$output.part" "$output"
# shellcheck disable=SC2086 # SCORE may hold several options
fairseq-doc "${METRIC:-bleu}" "$output" --reference "$RAW" ${SCORE---lang $target}
