# Sourced: how sanitized programs report. A finding ends the program with a status of its own, never silently.
sanitizer_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:abort_on_error=0:exitcode=99
export LSAN_OPTIONS=suppressions=$sanitizer_root/tools/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=suppressions=$sanitizer_root/tools/tsan.supp:history_size=7:exitcode=99
