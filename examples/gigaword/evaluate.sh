#!/usr/bin/env bash
# Generate headlines of the test split with beam 5, and score them by ROUGE.
#   RAW     reference, a file with as many lines
#   SYSTEM  doc (default), i3 or plain: the run to use; or
#   MODEL   a checkpoint, or several for an ensemble: a.pt:b.pt
#   DATA    folder that fairseq-doc prepare-headline wrote
#   OUT     new file for the output
#   SCORE   options of fairseq-doc rouge
# Further options go to fairseq-generate.
set -euo pipefail
fail() { echo "evaluate: $1" >&2; exit 1; }

model=${MODEL:-checkpoints/gigaword/${SYSTEM:-doc}/checkpoint_best.pt}
output=${OUT:-$(dirname "${model%%:*}")/generate-test.txt}
[ -n "${RAW:-}" ] || fail "expected RAW=reference, such as RAW=gigaword/test.tgt"
[ -f "$RAW" ] || fail "expected a reference, got no file $RAW"
IFS=: read -ra checkpoints <<<"$model"
for file in "${checkpoints[@]}"; do [ -f "$file" ] || fail "expected a checkpoint, got no file $file"; done
[ ! -e "$output" ] || fail "$output exists; remove it, or name another file: OUT=..."

fairseq-generate "${DATA:-data-bin/gigaword}" --user-dir fairseq_doc \
    --task translation --source-lang src --target-lang tgt \
    --path "$model" --gen-subset test --beam 5 --batch-size 64 --num-workers 0 "$@" >"$output.part"
mv "$output.part" "$output"
# shellcheck disable=SC2086 # SCORE may hold several options
fairseq-doc rouge "$output" --reference "$RAW" ${SCORE:-}
