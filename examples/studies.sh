# To be sourced by the examples that tune systems: each system is a study of fairseq-doc tune, in the folder $studies.

# tune SYSTEM SPACE [options of fairseq-doc tune] -- fairseq-train ...: tune, or resume, and write a report.
tune() {
    local study=(--study "$1" --storage "sqlite:///$studies/tune.db")
    fairseq-doc tune "$2" "${study[@]}" --dir "$studies/$1" "${@:3}"
    fairseq-doc tune "${study[@]}" --report "$studies/$1/report" --overwrite
}

# best_of SYSTEM [WITHOUT...]: its best settings as options.
best_of() {
    local report="$studies/$1/report/report.json"
    [ -f "$report" ] || { echo "expected $report, which tune.sh $1 writes; got none" >&2; return 1; }
    python - "$report" "${@:2}" <<'PYTHON'
import json, sys
settings = json.load(open(sys.argv[1]))["best"]["settings"]
print(*(f"--{name} {value}" for name, value in settings.items() if name not in sys.argv[2:]))
PYTHON
}
