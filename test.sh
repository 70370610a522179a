#!/usr/bin/env bash
# Installs what is missing, builds the release into build/ and runs every test; last line 'N passed, N failed'.
#   ./test.sh [--build-only] [PROGRAM ...]     programs as in tests/: base plan data ...; default: all
set -euo pipefail
cd "$(dirname "$0")"
build_only=false
programs=()
for argument in "$@"; do
  case "$argument" in
    --build-only) build_only=true ;;
    -*) echo "usage: ./test.sh [--build-only] [PROGRAM ...]" >&2; exit 2 ;;
    *) programs+=("$argument") ;;
  esac
done
tools/install.sh
tools/build.sh release ballast ballast_tests
if $build_only; then exit 0; fi
python3 tools/run_tests.py build "${programs[@]}"
