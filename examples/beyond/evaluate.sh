#!/usr/bin/env bash
# Table of a model's perplexity alone, with a cache and with dynamic evaluation, both tuned on valid:
#     examples/beyond/evaluate.sh MODEL DATA [SEGMENT...]
# SEGMENT: tokens between updates of dynamic evaluation (default: 5 and 20). Everything is in float32, like dynamic
# evaluation. Results are kept in MODEL.beyond/ as JSON; a second call resumes.
set -euo pipefail
[ $# -ge 2 ] || { echo "expected MODEL DATA; got $# arguments" >&2; exit 2; }
model="$1" data="$2"
shift 2
[ $# -gt 0 ] || set -- 5 20
folder="$model.beyond"
# Whether a file exists and is newer than the model, the training text and the split.
is_new() { [ "$1" -nt "$model" ] && [ "$1" -nt "$data/train.bin" ] && [ "$1" -nt "$data/$2.bin" ]; }
# evaluate NAME SPLIT OPTIONS...: into $found.
evaluate() {
    found="$folder/$1.$2.json"
    is_new "$found" "$2" && return
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
for similarity in dot cosine; do
    cache=(--cache-window 2000 --cache-similarity $similarity)
    evaluate "cache_$similarity" valid "${cache[@]}" --cache-search
    theta=$(setting cache theta) share=$(setting cache lambda)
    evaluate "cache_$similarity" test "${cache[@]}" --cache-theta "$theta" --cache-lambda "$share"
done
for segment in "$@"; do
    statistics="$folder/dynamic$segment.npz"
    is_new "$statistics" train || rm -f "$statistics"
    dynamic=(--dynamic --dynamic-segment "$segment" --dynamic-statistics "$statistics")
    evaluate "dynamic$segment" valid "${dynamic[@]}" --dynamic-search
    rate=$(setting dynamic rate) decay=$(setting dynamic decay)
    evaluate "dynamic$segment" test "${dynamic[@]}" --dynamic-rate "$rate" --dynamic-decay "$decay"
done
python - "$folder" "${@/#/dynamic}" <<'PYTHON'
import json, sys
folder, *dynamic = sys.argv[1:]
print("| evaluation | settings | valid perplexity | test perplexity | seconds, test | seconds, statistics and search |")
print("|---|---|---|---|---|---|")
for name in ("static", "cache_dot", "cache_cosine", *dynamic):
    valid, test = (json.load(open(f"{folder}/{name}.{split}.json")) for split in ("valid", "test"))
    settings = []
    for key, value in (test["cache"] or test["dynamic"] or {}).items():
        end = valid["at_ends"].get(key)
        settings.append(f"{key} {value}" + (f" (the {end} tried)" if end else ""))
    spent = f"{valid['seconds_before']:.0f}" if valid["searched"] else ""
    found = (valid["perplexity"], test["perplexity"])  # None: infinite
    perplexities = ("infinite" if one is None else f"{one:.2f}" for one in found)
    print("|", " | ".join([name, ", ".join(settings), *perplexities, f"{test['seconds']:.0f}", spent]), "|")
PYTHON
