#!/usr/bin/env bash
# Perplexity of a model as it is, with a cache and with dynamic evaluation, both tuned on valid, as a table:
#     examples/beyond/evaluate.sh MODEL DATA
# All in float32, as dynamic evaluation is. What is computed stays in MODEL.beyond/, as JSON; a second call goes on from
# there.
set -euo pipefail
model="$1" data="$2"
folder="$model.beyond"
# evaluate NAME SPLIT OPTIONS...: into $found, a file that a newer model or text makes void.
evaluate() {
    found="$folder/$1.$2.json"
    [ "$found" -nt "$model" ] && [ "$found" -nt "$data/$2.bin" ] && return
    mkdir -p "$folder"
    fairseq-doc eval-lm "$data" --path "$model" --gen-subset "$2" "${@:3}" --matmul-precision float32 --json \
        > "$found.part"
    mv "$found.part" "$found"
}
# The value of a setting in $found: cache theta, for example.
setting() { python -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]][sys.argv[3]])' "$found" "$@"; }

for split in valid test; do
    evaluate static $split
done
cache=(--cache-window 2000)
evaluate cache valid "${cache[@]}" --cache-search
theta=$(setting cache theta) share=$(setting cache lambda)
evaluate cache test "${cache[@]}" --cache-theta "$theta" --cache-lambda "$share"
for segment in 5 20; do
    dynamic=(--dynamic --dynamic-segment $segment)
    evaluate dynamic$segment valid "${dynamic[@]}" --dynamic-search
    rate=$(setting dynamic rate) decay=$(setting dynamic decay)
    evaluate dynamic$segment test "${dynamic[@]}" --dynamic-rate "$rate" --dynamic-decay "$decay"
done
python - "$folder" <<'PYTHON'
import json, sys
print("| evaluation | settings | valid perplexity | test perplexity | seconds, test | seconds, search on valid and statistics |")
print("|---|---|---|---|---|---|")
for name in ("static", "cache", "dynamic5", "dynamic20"):
    valid, test = (json.load(open(f"{sys.argv[1]}/{name}.{split}.json")) for split in ("valid", "test"))
    settings = ", ".join(f"{key} {value}" for key, value in (test["cache"] or test["dynamic"] or {}).items())
    spent = f"{valid['seconds_before']:.0f}" if valid["searched"] else ""
    row = name, settings, f"{valid['perplexity']:.2f}", f"{test['perplexity']:.2f}", f"{test['seconds']:.0f}", spent
    print("|", " | ".join(row), "|")
PYTHON
