#!/usr/bin/env bash
# Raw parallel text -> data for fairseq's --task translation.
#
#     scripts/prepare_mt.sh SRC TGT FOLDER [DESTDIR] [options]
#
# FOLDER holds train, valid and test (or what the options name), each with .SRC and .TGT, one sentence
# a line, raw. See --help; scripts/prepare_parallel.py does the work.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=python
[ -x "$root/.venv/bin/python" ] && python=$root/.venv/bin/python
exec "$python" "$root/scripts/prepare_parallel.py" mt "$@"
