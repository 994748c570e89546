#!/usr/bin/env bash
# Runs the benchmarks of the hot paths and compares what they allocate with the checked-in table, docs/dev/allocations.md (make
# allocations); with --write it writes the table. Counts of allocations and bytes hardly depend on the load of the machine, so a change
# that costs a hot path something is found before it is merged. What a cell does by the clock is counted with its calls, more of it the
# slower the machine is; so each benchmark runs three times, and its least counts are taken. It runs a fixed number of times in each,
# because the counts depend a little on how often buffers have grown.
set -euo pipefail
cd "$(dirname "$0")/.."
page=docs/dev/allocations.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count() { # PACKAGE BENCHMARKS TIMES
	timeout 10m go test -run '^$' -bench "^Benchmark($2)\$" -benchmem -count 3 -benchtime "$3x" "$1" >"$work/printed" 2>&1 || {
		cat "$work/printed" >&2
		exit 1
	}
	cat "$work/printed" >>"$work/all"
}
count ./raftfsm 'LockUnlock|Write|DecodeEntry|EncodeEntry' 500
count ./cell Cached 10000
count ./cell Calls 1000

# The rows of the table as they are now. The number of processors, behind the last dash, is no part of a name.
awk '$1 ~ /^Benchmark/ && NF > 1 {
	if ($NF != "allocs/op" || $(NF - 2) != "B/op") { print "allocations: not counted: " $0 >"/dev/stderr"; exit failed = 1 }
	name = substr($1, 10); sub(/-[0-9]+$/, "", name); gsub("_", " ", name)
	if (!(name in bytes) || $(NF - 3) + 0 < bytes[name]) bytes[name] = $(NF - 3) + 0
	if (!(name in allocs) || $(NF - 1) + 0 < allocs[name]) allocs[name] = $(NF - 1) + 0
} END { if (!failed) for (name in allocs) printf "| %s | %d | %d |\n", name, allocs[name], bytes[name] }' "$work/all" | LC_ALL=C sort >"$work/now"
[ -s "$work/now" ] || { echo "allocations: no benchmark was run" >&2; exit 1; }

if [ "${1-}" = --write ]; then
	{ sed '/^|---/q' "$page"; cat "$work/now"; } >"$work/page"
	exec cp "$work/page" "$page"
fi
# An operation may cost a twentieth more than the table says, and a tenth less; a path of a few allocations may not have one more. Bytes
# of a call depend a little on which buffers were at hand.
sed '1,/^|---/d' "$page" | awk -F ' *[|] *' '
	NR == FNR { allocs[$2] = $3 + 0; bytes[$2] = $4 + 0; next }
	{
		verdict = "as in the table"
		if (!($2 in allocs)) verdict = "not in the table"
		else if ($3 > allocs[$2] * 1.05 + 0.5 || $4 > bytes[$2] * 1.05 + 64) verdict = "worse"
		else if ($3 < allocs[$2] * 0.9 - 0.5 || $4 < bytes[$2] * 0.9 - 64) verdict = "better: write the table"
		printf "%-45s %8d allocations, %8d in the table; %9d bytes, %9d: %s\n", $2, $3, allocs[$2], $4, bytes[$2], verdict
		if (verdict != "as in the table") bad = 1
		seen[$2] = 1
	}
	END {
		for (name in allocs) if (!(name in seen)) { printf "%-45s in the table, but not measured\n", name; bad = 1 }
		if (bad) { print "allocations: if it is meant so: test/allocations.sh --write, and say why in the commit" >"/dev/stderr"; exit 1 }
	}' - "$work/now"
