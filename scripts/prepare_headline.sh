#!/usr/bin/env bash
# Articles and their headlines -> data for fairseq's --task translation.
#
#     scripts/prepare_headline.sh FOLDER [DESTDIR] [options]
#
# FOLDER holds train, valid and test (or what the options name), each with .src and .tgt, one text a
# line, words apart as in the published headline data; for raw text give --bpe sentencepiece. See
# --help; scripts/prepare_parallel.py does the work.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=python
[ -x "$root/.venv/bin/python" ] && python=$root/.venv/bin/python
exec "$python" "$root/scripts/prepare_parallel.py" headline "$@"
