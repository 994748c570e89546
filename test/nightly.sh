#!/usr/bin/env bash
# Runs the checks that are too long for every change, one after the other (make nightly), or those that are named: test/nightly.sh fuzz.
# After each of them it writes the result to docs/dev/nightly.md, and leaves the results of the others there. If a check fails, it runs the
# others, and then fails. The limits add up to less than thirteen hours on a machine of two cores.
set -uo pipefail
cd "$(dirname "$0")/.."
page=docs/dev/nightly.md
steps='race|90m|every test three times, in random order, under the race detector
acceptance|150m|the drills as often as the promises say
endurance|150m|the limits at their full size, and an hour of random clients and troubles
kills|40m|replicas with slow disks killed and stopped, most of them while entries are on their way to the master's log
mutants|180m|the source changed in small ways, one at a time; a test has to fail
fuzz FUZZTIME=2m0s|120m|every fuzz target
steady|20m|a cell under load keeps its master'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'kill "$running"; echo "nightly: interrupted; the page does not tell of make $target" >&2; exit 1' INT TERM

# row TARGET and section TARGET print the parts of the page that are of a target.
row() { grep "^| \`make $1[ \`]" "$page" 2>/dev/null; }
section() { awk -v head="## make $1" '/^## make / { on = $0 == head } on' "$page" 2>/dev/null; }

failed=
while IFS='|' read -r make limit shows <&3; do
	target=${make%% *}
	[ $# = 0 ] || [[ " $* " = *" $target "* ]] || continue
	echo "== make $make"
	at=$(git log -1 --format=%h) || exit 1
	began=$SECONDS result=passed
	: >"$work/printed"
	# shellcheck disable=SC2086
	timeout -k 30s "$limit" make $make >"$work/printed" 2>&1 & # in a process group of its own, which ends with it
	running=$!
	tail -n +1 -f --pid="$running" "$work/printed" &
	wait "$running"
	status=$?
	wait
	case $status in
	0) ;;
	124 | 137) result="**failed**: not done within $limit" ;;
	*) result="**failed**" ;;
	esac
	[ "$result" = passed ] || failed="$failed make $target"
	printf "| \`make %s\` | %s | %s | %s | %s, %s, %s on %s processors |\n" "$make" "$shows" "$result" "$((SECONDS - began))s" \
		"$(date -u +%F)" "$at" "$(go env GOVERSION)" "$(getconf _NPROCESSORS_ONLN)" >"$work/$target.row"
	printf '## make %s\n\n```\n%s\n```\n' "$target" "$(grep '[^[:space:]]' "$work/printed" | tail -n 8)" >"$work/$target.section"
	{
		cat <<-'HEAD'
			# The last long runs

			Made by `make nightly`, which runs each target in turn, or by parts of it
			(`test/nightly.sh fuzz`). Each row is of the last time that its target was run.

			| target | shows | result | took | when, and at which commit |
			|---|---|---|--:|---|
		HEAD
		for part in row section; do
			while IFS='| ' read -r name _; do
				of=$(cat "$work/$name.$part" 2>/dev/null || $part "$name")
				[ -n "$of" ] || continue
				[ $part = row ] || echo
				printf '%s\n' "$of"
			done <<<"$steps"
		done
	} >"$work/page" && cp "$work/page" "$page"
done 3<<<"$steps"
[ -z "$failed" ] || { echo "nightly: failed:$failed" >&2; exit 1; }
