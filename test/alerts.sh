#!/usr/bin/env bash
# Checks what Prometheus and Grafana are given in deploy, with Prometheus's own promtool: the rules and their tests, the example of a
# configuration, each query of the dashboard, and the metrics page of a live replica, on which the rules and the dashboard
# find what they look for. Run it with 'make verify-alerts', which builds the binaries; it needs Go, bash, jq and curl. It starts a
# cell of one replica on the loopback interface, and stops it.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
for tool in jq curl; do
	command -v "$tool" >/dev/null || { echo "alerts: $tool is not installed (Debian: apt install $tool)" >&2; exit 1; }
done
cd "$root"
promtool=$root/bin/promtool # without the clients of a dozen clouds, which take long to compile; go tool knows no -tags
go -C tools/promtool mod tidy -diff # here, and not in make verify-tidy, which would fetch all that promtool needs for this alone
go -C tools/promtool build -tags remove_all_sd -o "$promtool" github.com/prometheus/prometheus/cmd/promtool
work=$(mktemp -d)
dev=
cleanup() {
	[ -z "$dev" ] || { kill "$dev" 2>/dev/null; wait "$dev" 2>/dev/null || true; }
	rm -rf "$work"
}
trap cleanup EXIT
rules=deploy/prometheus/alerts.yaml dashboard=deploy/grafana/chubby.json

"$promtool" check rules --lint-fatal "$rules"
"$promtool" test rules deploy/prometheus/alerts_test.yaml
"$promtool" check config --lint-fatal deploy/prometheus/scrape.yaml

# JSON is YAML: the queries of the dashboard, with values for its variables, are rules.
jq '[.panels[].targets[]?.expr, .annotations.list[].expr]
	| map(gsub("\\$cell"; "main") | gsub("\\$replica"; ".*") | gsub("\\$__rate_interval"; "5m"))
	| {groups: [{name: "dashboard", rules: to_entries | map({record: "query:\(.key)", expr: .value})}]}' "$dashboard" >"$work/dashboard.json"
"$promtool" check rules "$work/dashboard.json"

# A port of its own: another cell may run here.
port=$((30000 + $$ % 2500))
"$root/bin/chubbyd" dev --replicas 1 --no-restart --base-port "$port" --data "$work/cell" >"$work/dev" 2>&1 &
dev=$!
page=http://127.0.0.1:$((port + 20))
for _ in $(seq 300); do
	! curl -sf "$page/readyz" >/dev/null || break
	kill -0 "$dev" 2>/dev/null || { cat "$work/dev" >&2; exit 1; }
	sleep 0.1
done
env -u CHUBBY_CELLS -u CHUBBY_CONFIG HOME="$work" "$root/bin/chubbyctl" --servers "127.0.0.1:$port" put /ls/local/watched yes >/dev/null # metrics with labels begin with a call
curl -sf "$page/metrics" >"$work/metrics"
"$promtool" check metrics <"$work/metrics"

# Bounds of buckets, and names of the process and of Go's runtime, are in no list: here they are.
missing=0
while read -r metric le; do
	grep -Eq "^$metric\{(.*,)?le=\"$le\"" "$work/metrics" || { echo "alerts: $metric has no bucket le=\"$le\"" >&2; missing=1; }
done < <(grep -Eo 'chubby_[a-z_]+_bucket\{[^}]*le="[^"]+"' "$rules" "$work/dashboard.json" | sed -E 's/^[^:]*:([a-z_]+)\{.*le="([^"]+)"$/\1 \2/')
while read -r metric; do
	grep -q "^$metric[ {]" "$work/metrics" || { echo "alerts: a replica has no metric $metric" >&2; missing=1; }
done < <(grep -Eoh '\b(go|process)_[a-z_]+' "$rules" "$dashboard" | sort -u)
[ "$missing" = 0 ]
echo "alerts: $(grep -c -- '- alert: ' "$rules") alerts and $(jq '.groups[0].rules | length' "$work/dashboard.json") queries of the dashboard are as they should be"
