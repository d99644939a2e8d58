#!/usr/bin/env bash
# Headlines of the test split with beam 5, and their ROUGE: RAW is the reference, a file of as many
# lines. SYSTEM is doc, i3 or plain, or MODEL names a checkpoint, or several for an ensemble: a.pt:b.pt.
# OUT is the output, a new file; SCORE are options of scripts/score_rouge.py. Further options go to
# fairseq-generate.
set -euo pipefail
model=${MODEL:-checkpoints/gigaword/${SYSTEM:-doc}/checkpoint_best.pt}
[ -n "${RAW:-}" ] || { echo "evaluate: expected RAW=reference, such as RAW=gigaword/test.tgt" >&2; exit 1; }
[ -f "$RAW" ] || { echo "evaluate: expected a reference, got no file $RAW" >&2; exit 1; }
IFS=: read -ra checkpoints <<<"$model"
for file in "${checkpoints[@]}"; do
    [ -f "$file" ] || { echo "evaluate: expected a checkpoint, got no file $file" >&2; exit 1; }
done
output=${OUT:-$(dirname "${model%%:*}")/generate-test.txt}
[ ! -e "$output" ] || { echo "evaluate: $output exists; remove it, or name another file: OUT=..." >&2; exit 1; }
fairseq-generate "${DATA:-data-bin/gigaword}" --user-dir "${USER_DIR:-fairseq_doc}" \
    --task translation --source-lang src --target-lang tgt \
    --path "$model" --gen-subset test --beam 5 --batch-size 64 --num-workers 0 "$@" >"$output.part"
mv "$output.part" "$output"
# shellcheck disable=SC2086 # SCORE may hold several options
python "$(dirname "$0")/../../scripts/score_rouge.py" "$output" --reference "$RAW" ${SCORE:-}
