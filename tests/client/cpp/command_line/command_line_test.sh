#!/bin/sh
# Asserts that the tool answers a bad command line with one line on stderr that names the
# mistake, and fails. Usage: command_line_test.sh TOOL
tool=$1
failures=0
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# expect STATUS TEXT ARGUMENT...: runs the tool; checks its exit status and its output's text.
expect() {
  wanted_exit=$1
  wanted_text=$2
  shift 2
  "$tool" "$@" >"$answer" 2>&1
  got_exit=$?
  if [ "$got_exit" -ne "$wanted_exit" ]; then
    echo "FAILED: convgrad $*: exit $got_exit, expected $wanted_exit"
    failures=$((failures + 1))
  fi
  if ! grep -qF -e "$wanted_text" "$answer"; then
    echo "FAILED: convgrad $*: no \"$wanted_text\" in: $(cat "$answer")"
    failures=$((failures + 1))
  fi
  if [ "$wanted_exit" -ne 0 ] && [ "$(wc -l <"$answer")" -ne 1 ]; then
    echo "FAILED: convgrad $*: not one line: $(cat "$answer")"
    failures=$((failures + 1))
  fi
}

problem=conv2d_n1_c2_o2_i4_k3_p1

expect 0 "times, GFLOP/s and the server's stages" help
expect 0 "convgrad COMMAND --help" --help
expect 0 "f32 for grad_weight and grad_bias" help backward
expect 0 "--nocheck" forward --help
expect 0 "timed calls" bench $problem --help
expect 0 "PROBLEM" check --help
expect 0 "number of tables to show" top --help
expect 0 "the role admin" sessions --help
expect 0 "dims of the inputs" program --help
expect 0 "--server ADDRESS=127.0.0.1:7070" capabilities --help
expect 0 "bash or zsh" completions --help
expect 0 "convgrad " --version
expect 2 "a command is missing"
expect 2 'unknown command "train"' train
expect 2 "PROBLEM is required; see convgrad backward --help" backward
expect 2 "PROBLEM: At Most 1 required but received 2" backward $problem twice
expect 2 "not expected: stray" top stray
expect 2 "not expected: --nosuchflag=1; see convgrad backward --help" backward $problem --nosuchflag=1
expect 2 "not expected: --repeat=3" backward $problem --repeat=3
expect 2 "not expected: --nojson" backward $problem --nojson
expect 2 "A subcommand is required" --seed=1
expect 2 "--dtype: 1 required f32|bf16|f16 missing" backward $problem --dtype
expect 2 '--dtype: found "--check"' backward $problem --dtype --check
expect 2 '--dtype: found ""' backward $problem --dtype= --check
expect 2 "--dtype: At Most 1 required but received 2" backward $problem --dtype=f32 --dtype=bf16
expect 2 "--json" backward $problem --json=perhaps
expect 2 '--dtype: found "f8"' --dtype=f8 backward $problem
expect 2 '"conv9d"' backward conv9d_n1
expect 2 "problem" forward ""
expect 2 '--dtype: found "f8"' backward $problem --dtype=f8
expect 2 '--layout: found "OIX"' backward $problem --layout=OIX
expect 2 '--weight_layout: found "NXC"' backward $problem --weight_layout=NXC
expect 2 '--gradients: found "grad_all"' backward $problem --gradients=grad_all
expect 2 '--result_dtype: found "f64"' backward $problem --result_dtype=grad_input=f64
expect 2 '--result_layout: found "NHCW"' backward $problem --result_layout=NHCW
expect 2 'results[0].layout' backward $problem --result_layout=grad_input=OIX
expect 2 '--scale: found "half"' backward $problem --scale=grad_weight=half
expect 2 '--backend: found "tpu"' backward $problem --backend=tpu
expect 2 '--priority: found "urgent", expected batch or interactive' backward $problem --priority=urgent
expect 2 '--repeat: found "0"' bench $problem --repeat=0
expect 2 '--direction: found "up"' bench $problem --direction=up
expect 2 "see convgrad forward --help" forward $problem --nocheck=9223372036854775808
expect 0 "timed calls" --direction forward bench $problem --help
expect 2 '--timeout: found "0s"' backward $problem --timeout=0s
expect 2 '--slice_items: found "-2"' backward $problem --slice_items=-2
expect 2 "results[0].which" backward $problem --gradients=output
expect 2 "results[1].which" backward $problem --gradients=grad_input,grad_input
expect 2 "at most 4294967295" backward conv2d_n1_c65536_o65536_i1000_k3_p1
expect 1 "no readable file" backward $problem --input=missing.npy
expect 2 '--traceparent: found "foo", expected version-trace-parent-flags' backward $problem --traceparent=foo
expect 2 '--traceparent: found "00-00000000000000000000000000000000' bench $problem --traceparent=00-00000000000000000000000000000000-b7ad6b7169203331-01
expect 2 '--traceparent: found "00-0000' bench $problem --traceparent=00-$(printf '%0120000d' 0)
expect 2 "--ca: found nothing, expected a PEM file, as there is a --server_name" capabilities --server_name=server
expect 2 "--bias" backward $problem --bias=any.npy
expect 2 '--repeat: found "many", expected 1 to 1000000000' bench $problem --repeat=many
expect 2 '--seed: found "99999999999999999999"' bench $problem --seed=99999999999999999999
expect 2 '--timeout: found "10", expected a time above 0 with a unit' bench $problem --timeout=10
expect 2 '--token: found "/nowhere"' backward $problem --token=/nowhere
expect 2 "ca: found '/nowhere'" backward $problem --ca=/nowhere
expect 2 'key: found nothing' backward $problem --cert=/nowhere
expect 1 "UNAVAILABLE" backward $problem --server=127.0.0.1:1
expect 1 "UNAVAILABLE" backward $problem --region=unix:/nonexistent/socket
expect 2 'region address: found "shm"' bench $problem --region=shm
expect 2 "SHELL is required" completions
expect 2 'shell: found "fish"' completions fish
expect 2 '"conv9d"' check $problem conv9d_n1
expect 1 "UNAVAILABLE" check --server=127.0.0.1:1
expect 2 '--interval: found "0s"' top --interval=0s
expect 2 '--count: found "-1"' top --count=-1
expect 2 '--metrics: found "9464"' top --metrics=9464
expect 1 "UNAVAILABLE: --metrics: found no answer" top --metrics=127.0.0.1:1
expect 1 "UNAVAILABLE" capabilities --server=unix:/nonexistent/socket
program=$(mktemp)
trap 'rm -f "$answer" "$program"' EXIT
cat >"$program" <<'END'
input x
input t index
parameter w [4, 3, 3, 3]
parameter m [4] fixed
a = conv(x, w, padding=1)
b = batch_norm(a, none, none, m, m)
c = conv(x, w, padding=1)
d = add(b, c)
y = cross_entropy(d, t)
output y
END
inputs=x=2x3x8x8,t=2x8x8
expect 0 "[2,4,8,8]" program "$program" --input=$inputs
expect 0 "108 trainable and 4 fixed parameters, 0.06 MFLOP forward" program "$program" --input=$inputs
expect 0 '"trainable_parameters": 108' program "$program" --input=$inputs --json
expect 2 "FILE is required" program
expect 1 "no readable file" program /nowhere
expect 2 'found "", expected x=DIMS,t=DIMS' program "$program"
expect 2 'found "2x3x8x8", expected x=DIMS,t=DIMS' program "$program" --input=2x3x8x8
expect 2 "the dims of t" program "$program" --input=x=2x3x8x8
expect 2 "dims, as 16x3x224x224" program "$program" --input=x=2x3xa,t=2
expect 2 "steps[0] (a).weight: found [4,3,3,3], expected [4,2,3,3]" program "$program" --input=x=2x2x8x8,t=2x8x8
expect 2 "the program's inputs alone" program "$program" --input=$inputs,z=2
echo "z = rely(x)" >>"$program"
expect 2 "line 11" program "$program" --input=$inputs
expect 1 "UNAVAILABLE" sessions --server=unix:/nonexistent/socket

if [ "$failures" -ne 0 ]; then
  echo "$failures failed"
  exit 1
fi
echo "all passed"
