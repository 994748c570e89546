#!/usr/bin/env bash
# Shows a primary, on a real cell of five processes: three candidates, a ledger that only the primary may write to, and failures of all
# kinds (make demo). It starts and stops everything itself, and takes about half a minute, 16 s of it the demonstration. It fails unless the
# ledger has refused at least one write of a stale primary, and accepted none. It needs Go, bash and curl.
set -euo pipefail
cd "$(dirname "$0")/../.."

base=17421 # the first port of the cell; the ledger takes the port below it
servers=127.0.0.1:$base,127.0.0.1:$((base + 1)),127.0.0.1:$((base + 2)),127.0.0.1:$((base + 3)),127.0.0.1:$((base + 4))
ledger=127.0.0.1:$((base - 1))
lease=6 delay=4 # seconds: short, so that the demonstration is; see docs/concepts.md for the defaults
limit=600       # seconds for all of it

fail() {
	echo "demo: $*" >&2
	exit 1
}

# now prints the time in tenths of a second; of whole seconds where bash is older than 5.
now() {
	local microseconds=${EPOCHREALTIME-}
	if [ -n "$microseconds" ]; then echo $((${microseconds/[.,]/} / 100000)); else date +%s0; fi
}

tenths() { echo "$(($1 / 10)).$(($1 % 10))"; }

say() { printf '%6ss  %s\n' "$(tenths $(($(now) - began)))" "$*"; }

# until_so WHAT COMMAND... waits until the command succeeds.
until_so() {
	local what=$1
	shift
	until "$@"; do
		[ $SECONDS -lt $limit ] || fail "waiting for $what: it takes more than $limit s"
		sleep 0.02
	done
}

# start NAME PROGRAM ARG... starts an actor, whose output is in $dir/NAME.out.
actors=
start() {
	local name=$1 program=$2
	shift 2
	: >"$dir/$name.out"
	"$dir/$program" "$@" >>"$dir/$name.out" 2>&1 &
	echo $! >"$dir/$name.pid"
	actors="$! $actors"
	disown
}

tell() { kill "-$2" "$(cat "$dir/$1.pid")"; }

# says ACTOR TEXT reports whether an actor has said something; it fails if the actor cannot any more.
says() {
	if grep -qF -- "$2" "$dir/$1.out"; then return; fi
	tell "$1" 0 2>/dev/null || fail "$1 ended without saying \"$2\"; it said: $(cat "$dir/$1.out")"
	return 1
}

cleanup() {
	local pid end=$((SECONDS + 10))
	for pid in $actors; do # the last one that was started first
		kill -CONT "$pid" 2>/dev/null && kill -TERM "$pid" 2>/dev/null || continue
		while kill -0 "$pid" 2>/dev/null; do
			[ $SECONDS -lt $end ] || kill -KILL "$pid" 2>/dev/null || true
			sleep 0.02
		done
	done
	rm -rf "$dir"
}

ctl() { "$dir/chubbyctl" --servers "$servers" "$@"; }

# is_primary OTHER and is_master set $primary and $master, if there is one; the primary is to be another than that one.
is_primary() { primary=$(ctl cat /ls/local/primary 2>/dev/null) && [ -n "$primary" ] && [ "$primary" != "$1" ]; }
is_master() { master=$(ctl -o json cell status 2>/dev/null | grep -o '"master":"[^"]*"' | head -n 1 | cut -d '"' -f 4) && [ -n "$master" ]; }

# counted NAME prints a number that the ledger counts.
counted() { curl -sf "http://$ledger/stats" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }

# serves reports whether the ledger does; it fails if the ledger cannot any more.
serves() {
	if counted Accepted >/dev/null; then return; fi
	tell ledger 0 2>/dev/null || fail "the ledger has ended; it said: $(cat "$dir/ledger.out")"
	return 1
}

# All are stubborn, because one of them will be paused.
candidate() {
	start "$1" primary --name "$1" --servers "$servers" --ledger "http://$ledger" --lease ${lease}s --lock-delay ${delay}s --stubborn
}

command -v curl >/dev/null || fail "curl is not installed"
dir=$(mktemp -d)
trap cleanup EXIT
trap 'exit 1' INT TERM
began=$(now)
say "building the cell, the command line and the example"
go build -o "$dir" ./cmd/chubbyd ./cmd/chubbyctl ./examples/primary ./examples/primary/ledger
began=$(now)

say "starting a cell of five replicas, a process each, with fsync"
start cell chubbyd dev --no-restart --data "$dir/cell" --base-port $base
until_so "the cell" says cell ready:
until_so "a master" is_master
say "the cell is ready: its master is $master"
start ledger ledger --listen "$ledger" --state "$dir/ledger.state"
until_so "the ledger to serve" serves

for name in alice bob carol; do candidate $name; done
until_so "a primary" is_primary ""
say "three candidates, leases of ${lease}s, lock-delay ${delay}s: $primary is the primary and writes to the ledger"

say "kill -9 of the primary, $primary"
killed=$(now) was=$primary
tell "$was" KILL
until_so "a primary" is_primary "$was"
after=$(($(now) - killed))
say "$primary is the primary, $(tenths $after) s later: the lease had to run out, then the lock-delay"
[ $after -ge $((10 * delay)) ] || fail "the lock passed on after $(tenths $after) s, within the lock-delay of $delay s"
candidate "$was"

before=$(counted Accepted) was=$primary
until_so "a master" is_master
pid=$(tr -d '[:space:]' <"$dir/cell/dev.json" | sed -n "s/.*\"id\":\"$master\",\"pid\":\([0-9]*\).*/\1/p")
say "kill -9 of the cell's master, $master (pid $pid)"
killed=$(now)
kill -KILL "$pid"
until_so "a master" is_master
say "$master is the master, $(tenths $(($(now) - killed))) s later"
sleep $lease
primary=$(ctl cat /ls/local/primary) accepted=$(counted Accepted)
[ "$primary" = "$was" ] && [ "$accepted" -gt "$before" ] ||
	fail "the primary was disturbed: $was, then $primary; $before writes, then $accepted"
say "$primary is still the primary and never noticed: $((accepted - before)) more writes"

say "SIGSTOP of the primary, $was, as a long garbage collection or a suspended machine would"
tell "$was" STOP
until_so "a primary" is_primary "$was"
until_so "its first write" says "$primary" "first write accepted"
say "$primary is the primary, and has written to the ledger"
say "SIGCONT of $was, which ignores its lock's context on purpose and goes on writing"
tell "$was" CONT
until_so "a refusal" says "$was" REFUSED
say "$(grep -m 1 -F REFUSED "$dir/$was.out")"
sleep 1

# Each entry was written by the newest primary at that time.
refused=$(counted RefusedStale)
tokens=$(curl -sf "http://$ledger/entries" | grep -o '"token":[0-9]*') || fail "the ledger does not say which entries it has"
read -r entries stale < <(awk -F : '{ if ($2 < newest) stale++; else newest = $2 } END { print NR, stale + 0 }' <<<"$tokens")
say "the ledger has $entries entries; it refused $refused writes of a stale primary and accepted $stale"
[ "$refused" -gt 0 ] && [ "$stale" = 0 ] && [ "$entries" -ge "$accepted" ] || fail "the ledger should have kept all entries, refused a stale write and accepted none"
