#!/usr/bin/env bash
# Run the whole test of harm: kills, full disks, malicious checkpoints, and hundreds of mutilated inputs,
# with their counts at the end. With TARGET and RECIPE, as a failure prints them: that case alone.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 FAIRSEQ_DOC_HARM=whole
if [ $# = 2 ]; then
    export FAIRSEQ_DOC_HARM_TARGET=$1 FAIRSEQ_DOC_HARM_RECIPE=$2
    exec .venv/bin/python -m pytest tests/harm -k test_a_mutilated_file -s
fi
exec .venv/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile tests/harm "$@"
