#!/usr/bin/env bash
# Checks the Helm chart in deploy/helm/chubby, and the manifests in deploy/kubernetes that are made of it. It needs no cluster: helm lints
# and renders the chart with the values in its directory ci, kubeconform compares what it renders with the schemas of Kubernetes,
# cert-manager and Prometheus's operator, kube-score looks for what is unwise, kube-linter, too, if it is installed, and chubbyd checks the configurations. With --write it
# writes the manifests.
set -euo pipefail
cd "$(dirname "$0")/.."

chart=deploy/helm/chubby
manifests=deploy/kubernetes/chubby.yaml
tool() { go tool -modfile=tools/kube/go.mod "$@"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Nothing of the reader's own helm is used, or changed.
export HELM_CACHE_HOME=$work/helm HELM_CONFIG_HOME=$work/helm HELM_DATA_HOME=$work/helm

# The manifests are what helm renders for the first start, but for the tests and for what says that helm keeps them.
render_manifests() {
	cat <<-HEAD
		# Made of deploy/helm/chubby by make manifests; do not edit. docs/kubernetes.md says what has to be there before: the Secrets, and
		# the image. When the cell has begun, set bootstrap to false in the ConfigMap.
		apiVersion: v1
		kind: Namespace
		metadata:
		  name: chubby
		  labels:
		    pod-security.kubernetes.io/enforce: restricted
	HEAD
	tool helm template chubby $chart --namespace chubby --no-hooks --values $chart/ci/bootstrap.yaml |
		grep -v -e 'app.kubernetes.io/managed-by: Helm' -e 'helm.sh/chart:'
}

if [ "${1:-}" = --write ]; then
	mkdir -p "$(dirname $manifests)"
	render_manifests >"$work/manifests"
	mv "$work/manifests" $manifests
	exit
fi

echo "== manifests"
render_manifests | diff -u $manifests - || { echo "$manifests is not what the chart says; run make manifests"; exit 1; }

echo "== schemas"
schemas=$work/schemas
(cd tools/kube && go run ./schemas "$schemas")

echo "== lint"
tool helm lint --strict $chart
for values in "$chart"/ci/*.yaml; do
	tool helm lint --strict --quiet --values "$values" $chart
done

# Checks of kube-score that are left out:
#   the limit of processors      a replica that is held back misses heartbeats, and the master changes
#   container-image-pull-policy  IfNotPresent is right for images that are not changed under their name
#   pod-networkpolicy            it wants policies for what goes out, too: to DNS, a bucket, an API server, at addresses that differ; and for the
#                                operator's pod and the test, which have no port
left_out=(--ignore-container-cpu-limit --ignore-test=container-image-pull-policy --ignore-test=pod-networkpolicy)
too=(--enable-optional-test=container-seccomp-profile --enable-optional-test=container-ports-check)
go build -o "$work/chubbyd" ./cmd/chubbyd
(cd tools/kube && go build -o "$work/unpack" ./unpack)
for values in "" "$chart"/ci/*.yaml; do
	name=$(basename "${values:-default}" .yaml)
	one_node=() alone=()
	if [ "$name" = plain ]; then # it is for one node
		one_node=(--ignore-test=statefulset-has-host-podantiaffinity) alone=(--exclude no-anti-affinity)
	fi
	echo "== $name"
	rendered=$work/$name.yaml
	tool helm template chubby $chart --namespace chubby ${values:+--values "$values"} >"$rendered"
	tool kubeconform -strict -summary -schema-location "$schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json" "$rendered"
	go tool -modfile=tools/kubescore/go.mod kube-score score --output-format ci "${left_out[@]}" "${one_node[@]}" "${too[@]}" "$rendered" >"$work/score" || true
	if grep -v -e '^\[OK\]' -e '^\[SKIPPED\]' "$work/score"; then
		exit 1
	fi
	grep -q '^\[OK\]' "$work/score" || { echo "kube-score has checked nothing"; exit 1; }
	if command -v kube-linter >/dev/null; then
		kube-linter lint "${alone[@]}" "$rendered"
	fi
	"$work/unpack" "$work/$name" <"$rendered"
	checked=0
	for config in "$work/$name"/config/*.yaml; do
		"$work/chubbyd" config check "$config" >"$work/check" 2>&1 || { cat "$work/check"; exit 1; }
		checked=$((checked + 1))
	done
	echo "$checked configurations are right"
done

echo "== what the schemas find"
sed 's/publishNotReadyAddresses/publishNotReadyAdresses/' "$work/default.yaml" >"$work/misspelt.yaml"
! tool kubeconform -strict -schema-location "$schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json" "$work/misspelt.yaml" || { echo "a field that does not exist is not found"; exit 1; }

echo "== what restarts no replica"
# Whoever sets bootstrap to false, or gives a pod a new id, must not set off a rolling update.
set_of() { tool helm template chubby $chart --namespace chubby --show-only templates/statefulset.yaml "$@"; }
for mode in secret certManager; do
	set_of --set tls.mode=$mode >"$work/set"
	for change in bootstrap=true replicas.joined.2=chubby-2b 'operators={other}'; do
		set_of --set tls.mode=$mode --set "$change" | diff -u "$work/set" - || { echo "$change changes the StatefulSet"; exit 1; }
	done
done
! set_of --set config.keepalives=1000 | diff -q "$work/set" - >/dev/null || { echo "a change of the configuration restarts nothing"; exit 1; }

echo "== what is refused"
refused() {
	local want=$1
	shift
	if tool helm template chubby $chart "$@" >"$work/out" 2>&1; then
		echo "helm renders $*"
		exit 1
	fi
	grep -q -e "$want" "$work/out" || { echo "helm refuses $*, and does not say $want:"; cat "$work/out"; exit 1; }
}
refused 'the chart sets tls-ca' --set config.tls-ca=x
refused 'no pod "7"' --set replicas.joined.7=chubby-7
refused 'backup.claim' --set backup.to=directory
refused 'operators' --set 'operators={}' --set-json 'operators=[]'
refused 'write it as 1Gi' --set resources.limits.memory=1000000000
refused 'tls' --set tls.mode=off
refused "additional properties" --set bootstarp=true

echo "the chart is as it should be"
