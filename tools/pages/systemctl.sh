#!/bin/sh
# Stands for systemctl on the hosts, which have no systemd: it reads the unit that the page installs, and honours what the unit says, but for
# the keys that keep the replica in a sandbox. A key that it does not know is an error: either the unit has a typing error, or it is to be
# added here.
set -e
units=/etc/systemd/system
run=/var/lib/systemctl # the process ids of supervisors, and of services (.main)
journal=/var/log/journal
known='Unit.Description Unit.Documentation Unit.After Unit.Wants Unit.StartLimitIntervalSec Install.WantedBy Service.Type Service.User
	Service.Group Service.WorkingDirectory Service.EnvironmentFile Service.ExecStart Service.ExecReload Service.Restart Service.RestartSec
	Service.RestartPreventExitStatus Service.LimitNOFILE Service.TimeoutStopSec Service.StateDirectory Service.StateDirectoryMode
	Service.LogsDirectory Service.LogsDirectoryMode'
sandbox='Service.CapabilityBoundingSet Service.LockPersonality Service.MemoryDenyWriteExecute Service.NoNewPrivileges Service.Private
	Service.Protect Service.RemoveIPC Service.Restrict Service.SystemCall Service.UMask' # what such keys begin with

fail() {
	echo "systemctl: $*" >&2
	exit 1
}

# read_unit reads the unit $name into $unit.
read_unit() {
	file=$units/${name%.service}.service
	if command -v systemd-analyze >/dev/null; then
		said=$(systemd-analyze verify --man=no "$file" 2>&1) || fail "systemd-analyze verify $file: $said"
		case "$said" in *"${file##*/}"*) fail "systemd-analyze verify $file: $said" ;; esac
	fi
	unit=$(awk -v known="$known" -v sandbox="$sandbox" '
		BEGIN {
			for (n = split(known, list); n > 0; n--) is_known[list[n]]
			most = split(sandbox, begins)
		}
		{ gsub(/^[ \t]+|[ \t]+$/, "") }
		/^(#|$)/ { next }
		/^\[/ { section = substr($0, 2, length($0) - 2); next }
		{
			at = index($0, "=")
			key = section "." substr($0, 1, at - 1)
			found = key in is_known
			for (i = 1; i <= most; i++) found = found || index(key, begins[i]) == 1
			if (!at || !found) { print FILENAME ", line " FNR ": " $0 ": not a key that this launcher knows" >"/dev/stderr"; exit 1 }
			print key substr($0, at)
		}' "$file")
	user=$(key User)
	[ -n "$(key ExecStart)" ] && [ -n "$user" ] || fail "$file says neither whom to start nor as whom"
}

key() { printf '%s\n' "$unit" | sed -n "s/^Service\.$1=//p"; }

# launch becomes what a line of the unit starts: as its user, in its directory and with its environment.
launch() {
	line=$1
	set -- PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "HOME=$(getent passwd "$user" | cut -d : -f 6)" "USER=$user"
	environment=$(key EnvironmentFile)
	if [ -n "$environment" ] && { [ -e "${environment#-}" ] || [ "$environment" = "${environment#-}" ]; }; then
		while read -r assignment || [ -n "$assignment" ]; do
			case "$assignment" in '' | '#'*) ;; *) set -- "$@" "$assignment" ;; esac
		done <"${environment#-}"
	fi
	cd "$(key WorkingDirectory)"
	# shellcheck disable=SC2086
	exec setsid env -i "$@" setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups $line
}

make_directories() {
	for kind in State:/var/lib Logs:/var/log; do
		for dir in $(key "${kind%:*}Directory"); do
			install -d -m "$(key "${kind%:*}DirectoryMode")" -o "$user" -g "$(id -g "$user")" "${kind#*:}/$dir"
		done
	done
}

# supervise runs the service until it ends and is not to be started again, or is to stop.
supervise() {
	stopped='' main=''
	trap 'stopped=yes; [ -z "$main" ] || kill -TERM "$main"' TERM
	while :; do
		read_unit
		make_directories
		files=$(key LimitNOFILE) most=$(ulimit -H -n) # a container may allow fewer, which is enough here
		if [ "$most" != unlimited ] && [ "$files" -gt "$most" ]; then files=$most; fi
		ulimit -S -n "$files"
		[ -z "$stopped" ] || exit 0
		launch "$(key ExecStart)" &
		main=$! code=0
		printf %s "$main" >"$run/$name.main"
		wait "$main" || code=$?
		[ -z "$stopped" ] || wait "$main" || true # the trap may have ended the first
		main=''
		rm "$run/$name.main"
		[ -z "$stopped" ] || exit 0
		echo "$name: main process exited, status=$code"
		[ "$code" != 0 ] && [ "$(key Restart)" = on-failure ] || exit 0
		case " $(key RestartPreventExitStatus) " in *" $code "*) exit 0 ;; esac
		sleep 0.1 # in place of RestartSec
	done
}

# lives reports whether the process runs whose id a file in $run has.
lives() { [ -e "$run/$1" ] && kill -0 "$(cat "$run/$1")" 2>/dev/null; }

start() {
	! lives "$name" || return 0
	mkdir -p "$run" "$journal"
	setsid "$0" supervise "$name" >>"$journal/$name" 2>&1 </dev/null &
	printf %s $! >"$run/$name"
}

stop() {
	[ -e "$run/$name" ] || return 0
	kill -TERM "$(cat "$run/$name")" 2>/dev/null || true
	for _ in $(seq "$(key TimeoutStopSec)"00); do
		if ! lives "$name"; then
			rm "$run/$name"
			return
		fi
		sleep 0.01
	done
	fail "$name has not stopped in $(key TimeoutStopSec) s"
}

now=
for arg; do # [enable|disable] [--now] UNIT, and the like
	shift
	if [ "$arg" = --now ]; then now=-now; else set -- "$@" "$arg"; fi
done
[ "$*" != daemon-reload ] || exit 0
[ $# = 2 ] || fail "$*: not understood"
name=$2
[ "$1" = supervise ] || read_unit
case $1$now in
supervise) supervise ;;
start* | enable-now) start ;;
stop* | disable-now) stop ;;
restart*)
	stop
	start
	;;
reload*)
	lives "$name.main" || fail "$name does not run"
	MAINPID=$(cat "$run/$name.main")
	(launch "$(key ExecReload | sed "s/\$MAINPID/$MAINPID/g")")
	;;
is-active*) lives "$name.main" || fail "$name is inactive" ;;
*) fail "$*: not understood" ;;
esac
