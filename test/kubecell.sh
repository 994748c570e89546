#!/usr/bin/env bash
# Runs the cell that the Helm chart in deploy/helm/chubby renders, without a cluster: five processes with the arguments, variables,
# configuration, certificates, user, capabilities and read-only root file system that the pods would have, in namespaces of their own. It
# begins the cell, runs what helm test runs, loses a disk, and does what docs/kubernetes.md says then. It cannot show what only a cluster
# has: scheduling, volumes, probes, policies, cert-manager. Run it as root on Linux; elsewhere it says that it is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

for needed in unshare setpriv ip mount; do
	command -v $needed >/dev/null || { echo "kubecell: SKIPPED: $needed is not installed"; exit 0; }
done
if [ "$(id -u)" != 0 ] || ! unshare --net --mount --pid --fork true 2>/dev/null; then
	echo "kubecell: SKIPPED: this needs root, and namespaces"
	exit 0
fi

work=${KUBECELL_WORK:-}
if [ -z "$work" ]; then # first outside, where Go and the network are
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work/bin"
	CGO_ENABLED=0 go build -o "$work/bin/" ./cmd/chubbyd ./cmd/chubbyctl
	(cd tools/kube && go build -o "$work/bin/unpack" ./unpack)
	export HELM_CACHE_HOME=$work/helm HELM_CONFIG_HOME=$work/helm HELM_DATA_HOME=$work/helm
	render() { # a name, and values
		local name=$1
		shift
		go tool -modfile=tools/kube/go.mod helm template chubby deploy/helm/chubby --namespace chubby "$@" | "$work/bin/unpack" "$work/$name"
	}
	render first --set bootstrap=true
	render begun
	render joined --set replicas.joined.2=chubby-2b
	# All of it ends with the first process of the namespace, whatever ends this one.
	KUBECELL_WORK=$work unshare --net --mount --pid --fork --kill-child --mount-proc "$0"
	exit
fi

# Now inside. 10.0.0.10 + N is the address of pod N.
domain=chubby-peers.chubby.svc.cluster.local
user=65532
ip link set lo up
mkdir -p "$work/etc/chubby/tls" "$work/etc/chubby/config" "$work/etc/chubby/operator" "$work/run"
echo '127.0.0.1 localhost' >"$work/etc/hosts"
for i in 0 1 2 3 4; do
	ip address add "10.0.0.$((10 + i))/32" dev lo
	echo "10.0.0.$((10 + i)) chubby-$i.$domain" >>"$work/etc/hosts"
done
echo '10.0.0.13 chubby.chubby.svc.cluster.local' >>"$work/etc/hosts" # the Service, which leads to any of them
echo 'hosts: files' >"$work/etc/nsswitch.conf"

certify() { # the replica in pod $2 is $1
	(cd "$work/run" && "$work/bin/chubbyd" certs server "$1" --cell main \
		--host "chubby-$2.$domain,chubby.chubby.svc.cluster.local,chubby.chubby.svc,chubby.chubby,chubby") >/dev/null
}
secrets() { # what the Secrets would have, as the pods see it
	cp "$work"/run/certs/{ca.crt,replica-ca.crt} "$work"/run/certs/{server,replica}-chubby-* "$work/etc/chubby/tls/"
	chown -R 0:$user "$work/etc/chubby/tls"
	chmod 0440 "$work"/etc/chubby/tls/*
}
configure() { cp "$work/$1"/config/*.yaml "$work/etc/chubby/config/"; }

(cd "$work/run" && "$work/bin/chubbyd" certs init && "$work/bin/chubbyd" certs client chubby-operator) >/dev/null
for i in 0 1 2 3 4; do certify "chubby-$i" "$i"; done
secrets
configure first
cp "$work/run/certs/ca.crt" "$work/etc/chubby/operator/ca.crt"
cp "$work/run/certs/client-chubby-operator.crt" "$work/etc/chubby/operator/tls.crt"
cp "$work/run/certs/client-chubby-operator.key" "$work/etc/chubby/operator/tls.key"
chown -R 0:$user "$work/etc/chubby/operator"
chmod 0440 "$work"/etc/chubby/operator/*
chmod 755 "$work"

# in_pod becomes a command as a container would run it, so that signals reach that: $1 is what is mounted at /var/lib/chubby, or nothing.
in_pod() {
	local volume=$1
	shift
	# shellcheck disable=SC2016 # the inner shell expands that
	exec unshare --mount bash -c '
		work=$1 volume=$2 user=$3
		shift 3
		mount --make-rprivate /
		mount --bind "$work/etc" /etc
		mount -t tmpfs tmpfs /var/lib
		if [ -n "$volume" ]; then
			mkdir -p /var/lib/chubby
			mount --bind "$volume" /var/lib/chubby
		fi
		mount -o remount,bind,ro /var/lib
		mount -o remount,bind,ro /etc
		mount -o remount,bind,ro /
		mountpoint -q /tmp && mount -o remount,bind,ro /tmp
		exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
	' in_pod "$work" "$volume" "$user" "$@"
}

pids=()
start() { # pod $1, by the arguments and variables of $2
	local i=$1 from=$2
	local volume=$work/volume$i args env
	mkdir -p "$volume"
	chown 0:$user "$volume" # as fsGroup has it
	chmod 2775 "$volume"
	mapfile -t args < <(sed "s/\$(POD_NAME)/chubby-$i/" "$work/$from/args")
	mapfile -t env <"$work/$from/env"
	# All pods are in one network here, so each listens at its own address: the one thing that a pod has not.
	in_pod "$volume" env -i PATH="$work/bin" POD_NAME="chubby-$i" "${env[@]}" \
		CHUBBYD_LISTEN="10.0.0.$((10 + i)):7421,10.0.0.$((10 + i)):7431,10.0.0.$((10 + i)):7441" "${args[@]}" >>"$work/log$i" 2>&1 &
	pids[i]=$!
}
all=$(for i in 0 1 2 3 4; do printf '%s' "chubby-$i.$domain:7421,"; done | sed 's/,$//')
ctl() (
	in_pod "" env -i PATH="$work/bin" CHUBBY_CELLS="main=${servers:-$all}" \
		CHUBBY_CACERT=/etc/chubby/operator/ca.crt CHUBBY_CERT=/etc/chubby/operator/tls.crt CHUBBY_KEY=/etc/chubby/operator/tls.key chubbyctl "$@"
)
fail() {
	echo "kubecell: $1" >&2
	tail -n 5 "$work"/log* >&2
	exit 1
}
until_it() { # what is waited for, and a command
	local what=$1
	shift
	for _ in $(seq 120); do
		if "$@" >"$work/out" 2>&1; then
			echo "ok    $what"
			return
		fi
		sleep 0.5
	done
	cat "$work/out" >&2
	fail "not within a minute: $what"
}
all_ok() { [ "$(ctl cell status main -o json | grep -o '"healthy": *true' | wc -l)" = "$1" ]; }
ready() { curl --fail --silent --max-time 2 "http://10.0.0.$((10 + $1)):7441/readyz"; }

for i in 0 1 2 3 4; do start $i first; done
until_it "the cell begins, and five replicas are well" all_ok 5
for i in 0 1 2 3 4; do until_it "pod $i is ready" ready $i; done
until_it "helm test: a lock" ctl acquire /ls/main/helm-test --wait 1m --reason "helm test" -- chubbyctl cell status main
cat "$work/out"

servers=chubby.chubby.svc.cluster.local:7421 until_it "a client that knows the Service alone writes a file" ctl put /ls/main/hello world

configure begun # bootstrap: false
for i in 4 3 2 1 0; do # as a rolling update does
	kill -TERM "${pids[i]}"
	wait "${pids[i]}" || fail "pod $i did not stop in order"
	start $i begun
	until_it "pod $i was restarted, and is ready" ready $i
done
until_it "five replicas are well" all_ok 5

kill -KILL "${pids[2]}"
wait "${pids[2]}" 2>/dev/null || true
for name in first begun; do # the disk is lost, whatever bootstrap says
	rm -rf "$work/volume2"
	configure $name
	start 2 $name
	code=0
	wait "${pids[2]}" || code=$?
	[ $code = 78 ] || fail "pod 2 ended with $code on an empty disk ($name)"
	echo "ok    an empty disk is refused with 78 ($name)"
done

until_it "the lost replica leaves" ctl cell remove chubby-2 main
certify chubby-2b 2
secrets
configure joined
rm -rf "$work/volume2"
start 2 joined
until_it "the new one is added" ctl cell add chubby-2b "chubby-2.$domain:7431" main
until_it "pod 2 is ready" ready 2
until_it "five replicas are well" all_ok 5
ctl cell members main
for i in 0 1 2 3 4; do kill -TERM "${pids[i]}"; done
for i in 0 1 2 3 4; do wait "${pids[i]}" || fail "pod $i did not stop in order"; done
echo "kubecell: the cell of the chart works, as far as that can be seen without a cluster"
