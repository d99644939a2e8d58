#!/usr/bin/env bash
# Trees in brackets -> data for a language model of their symbols, and for a parser.
#
#     scripts/prepare_parsing.sh FOLDER [DESTDIR] [options]
#
# FOLDER holds train.mrg, dev.mrg and test.mrg, or what the options name. See --help;
# scripts/prepare_parsing.py does the work.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=python
[ -x "$root/.venv/bin/python" ] && python=$root/.venv/bin/python
exec "$python" "$root/scripts/prepare_parsing.py" "$@"
