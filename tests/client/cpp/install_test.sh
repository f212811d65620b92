#!/bin/sh
# Asserts that a project can find the installed client, build with it and use it.
# Usage: install_test.sh BUILD_DIR EXAMPLES_DIR
set -eu
build=$1
examples=$2
work=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; fi; rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/installed" --component client >"$work/log"
cmake -S "$examples" -B "$work/example" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_PREFIX_PATH="$work/installed" >>"$work/log"
cmake --build "$work/example" >>"$work/log"

"$build/server/convgrad-server" --listen="unix:$work/socket" --metrics_listen= \
  >"$work/log" 2>&1 &
server=$!
tries=0
until "$build/server/convgrad-server" --listen="unix:$work/socket" --healthcheck \
  >/dev/null 2>&1; do
  tries=$((tries + 1))
  if [ $tries -gt 100 ]; then cat "$work/log"; exit 1; fi
  sleep 0.1
done
"$work/example/gradients" "unix:$work/socket" >"$work/printed"
cat >"$work/expected" <<'EXPECTED'
grad_input: 0 1 1 2 6 4 2 5 3
grad_weight: 8 12 20 24
EXPECTED
diff "$work/expected" "$work/printed"
"$work/example/layers" "unix:$work/socket" >"$work/printed"
cat >"$work/expected" <<'EXPECTED'
conv2d_n2_c3_o8_i16_k3_p1: grad_weight sums to 101568
conv2d_n2_c8_o8_i16_k3_s2_p1: grad_weight sums to 67712
conv2d_n2_c8_o4_i8_k1: grad_weight sums to 4096
EXPECTED
diff "$work/expected" "$work/printed"
"$work/example/trainer" "unix:$work/socket" "$examples/network.txt" >"$work/printed" || {
  cat "$work/printed"
  exit 1
}
if [ "$(grep -c '^step [0-9]*: loss [0-9.]*$' "$work/printed")" -ne 5 ]; then
  cat "$work/printed"
  exit 1
fi
