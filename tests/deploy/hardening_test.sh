#!/usr/bin/env bash
# Asserts that programs were built with hardening options. Usage: hardening_test.sh PROGRAM...
set -euo pipefail

failures=0
all_symbols=
# expect TEXT PATTERN FEATURE: reports a missing feature unless the text matches the pattern.
expect() {
  grep -qE -e "$2" <<<"$1" && return
  echo "FAILED: $program: no $3"
  failures=$((failures + 1))
}

for program in "$@"; do
  header=$(readelf -hW "$program")
  segments=$(readelf -lW "$program")
  dynamic=$(readelf -dW "$program")
  symbols=$(readelf --dyn-syms -W "$program")
  expect "$header" 'Type: +DYN' "PIE"
  expect "$dynamic" 'FLAGS_1.*\<PIE\>' "PIE"
  expect "$dynamic" 'FLAGS_1.*\<NOW\>' "BIND_NOW"
  expect "$segments" 'GNU_RELRO' "RELRO"
  expect "$segments" 'GNU_STACK.* RW ' "stack that isn't executable"
  expect "$symbols" '__stack_chk_fail' "stack protector"
  all_symbols+=$symbols
  # Checks CET in the program's own code. The linker marks the whole program only if every
  # object is marked, and some libraries' objects aren't.
  main=$(objdump -d --no-show-raw-insn --disassemble=main "$program")
  expect "$main" 'endbr64' "CET landing pads"
done
# Looks at all programs together, because FORTIFY shows only in a program that has a call whose
# size the compiler can't prove.
program=any
expect "$all_symbols" '__[a-z]+_chk@' "FORTIFY"
[[ $failures -eq 0 ]] && echo "all hardened"
exit $failures
