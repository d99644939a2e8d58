#!/usr/bin/env bash
# Train each system for eight epochs with the best settings of every study, then the best of these with three seeds, and
# compare them on two test sets:
#     examples/multi30k/compare.sh DATA STUDIES RAW1 RAW2 SYSTEM... [options of fairseq-doc compare]
# Run tune.sh for each system first. The settings are chosen on NAME.en-de and then used for NAME.de-en, too. RAW1, RAW2:
# raw references of the splits test and test1. A training is in STUDIES/final.PAIR/SYSTEM.STUDY-seedN. The system linear is
# not tuned, but has the settings of i3. A second call resumes.
set -euo pipefail
[ $# -ge 5 ] || { echo "expected DATA STUDIES RAW1 RAW2 SYSTEM...; got $# arguments" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
source "$here/systems.sh"
source "$here/../studies.sh"
data="${1%/}" studies="$2" raw1="$3" raw2="$4"
shift 4
pair="${data##*.}"
folder="$studies/final.$pair" chosen_by="$studies/final.en-de/comparison.json"
for file in "$raw2" "$data/test1.$pair.${pair#*-}.bin"; do # used last, after hours
    [ -s "$file" ] || { echo "expected $file, for the second test set; got no such file, or an empty one" >&2; exit 1; }
done
names=() tuned=()
while [ $# -gt 0 ] && [[ $1 != -* ]]; do
    model_of "$1" >/dev/null
    best_of "${1/linear/i3}" >/dev/null
    names+=("$1")
    [ "$1" = linear ] || tuned+=("$1")
    shift
done
if [[ " ${names[*]} " = *" linear "* && " ${tuned[*]} " != *" i3 "* ]]; then
    echo "linear has the settings of i3: expected i3 among the systems; got ${names[*]}" >&2
    exit 1
fi

# candidate SYSTEM STUDY: a system for fairseq-doc compare. A mixture has its own lambda if the study has none.
candidate() {
    local model settings
    model=$(model_of "$1") || return # set -e does not hold in $(...)
    case "$1" in
        i*) settings="$(best_of "$1") $(best_of "$2")" ;; # the second wins
        *) settings=$(best_of "$2" doc-lambda) ;;
    esac || return
    echo "$1.$2=$model $settings"
}

# train SYSTEM... [options of fairseq-doc compare]: all in one folder, so that nothing is trained twice.
train() {
    fairseq-doc compare --dir "$folder" --reference "$raw1" "$@" -- \
        fairseq-train "$data" -s "${pair%-*}" -t "${pair#*-}" $training $(updates 8)
}

if [ "$pair" = en-de ]; then
    candidates=()
    for name in "${tuned[@]}"; do
        for study in "${tuned[@]}"; do candidates+=("$(candidate "$name" "$study")"); done
    done
    train "${candidates[@]}" "$@" --seeds 1
elif [ ! -f "$chosen_by" ]; then
    echo "expected $chosen_by, of the settings' choice on en-de; got none" >&2
    exit 1
fi
chosen=$(python - "$chosen_by" "${names[@]}" <<'PYTHON'
import json, sys
valid = {name: of["valid"]["values"][0] for name, of in json.load(open(sys.argv[1]))["systems"].items()}
for system in sys.argv[2:]:
    tuned = "i3" if system == "linear" else system
    own = [name for name in valid if name.split(".")[0] == tuned]
    if not own:
        sys.exit(f"{sys.argv[1]}: expected trainings of {tuned} on en-de that did not diverge; got none")
    print(system, min(own, key=valid.get).split(".")[1])
PYTHON
)
finals=()
while read -r name study; do finals+=("$(candidate "$name" "$study")"); done <<<"$chosen"
train "${finals[@]}" "$@"
# The second test set, and paired bootstrap of each seed's systems against the first on both.
{ read -ra systems; read -ra seeds; } < <(python - "$folder/comparison.json" <<'PYTHON'
import json, sys
systems = json.load(open(sys.argv[1]))["systems"]  # without those whose trainings diverged
print(*systems)
print(*sorted(set.intersection(*(set(of["seeds"]) for of in systems.values()))))
PYTHON
)
for seed in "${seeds[@]}"; do
    outputs=() others=()
    for system in "${systems[@]}"; do
        run="$folder/$system-seed$seed"
        outputs+=("$run/generate-test.txt") others+=("$run/generate-test1.txt")
        [ "$run/generate-test1.txt" -nt "$run/checkpoints/checkpoint_best.pt" ] || {
            fairseq-generate "$data" --user-dir fairseq_doc --task translation -s "${pair%-*}" -t "${pair#*-}" \
                --path "$run/checkpoints/checkpoint_best.pt" --gen-subset test1 --beam 5 --batch-size 64 \
                --num-workers 0 --cpu >"$run/generate-test1.part"
            mv "$run/generate-test1.part" "$run/generate-test1.txt"
        }
    done
    fairseq-doc bleu "${outputs[@]}" --lang "${pair#*-}" --data "$data" --reference "$raw1"
    fairseq-doc bleu "${others[@]}" --lang "${pair#*-}" --data "$data" --reference "$raw2"
done
