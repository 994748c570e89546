#!/bin/bash
# shellcheck disable=SC2317 # functions are called by must
# What packages.sh has done on a system with systemd that was installed for it, as root: /root/old.deb and /root/new.deb are the packages.
failed=0
export CHUBBY_CELLS=main=127.0.0.1:7421
# must NAME COMMAND...: the command succeeds.
must() {
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then echo "ok    $name"; else
		echo "FAIL  $name: $out"
		failed=1
	fi
}
says() { # TEXT COMMAND...: prints it, whatever the command's end
	local text=$1 out
	shift
	out=$("$@" 2>&1)
	grep -qF -- "$text" <<<"$out" || { echo "$out"; return 1; }
}
is() { [ "$(systemctl show --value --property "$1" chubbyd)" = "$2" ] || { systemctl --no-pager --lines 20 status chubbyd; return 1; }; }
# soon COMMAND...: the command succeeds within a minute, and before systemd gives the replica up; else this shows what it printed.
soon() {
	local out end=$((SECONDS + 60))
	until out=$(timeout 10 "$@" 2>&1); do
		if [ "$SECONDS" -ge "$end" ] || is ActiveState failed >/dev/null; then
			echo "$out"
			systemctl --no-pager --lines 20 status chubbyd
			return 1
		fi
		sleep 0.2
	done
}
ready() { soon bash -c 'chubbyctl cell status main | tee /dev/stderr | grep -q "master   *yes"'; }
# started_again N: since somebody has started the replica, systemd has done so more than N times.
# shellcheck disable=SC2016 # the other shell fills it in
started_again() { soon bash -c '[ "$(systemctl show --value --property NRestarts chubbyd)" -gt '"$1"' ]'; }
main_pid() { systemctl show --value --property MainPID chubbyd; }

must "install" says "No replica was started" dpkg --install /root/old.deb
must "systemd-analyze verify" systemd-analyze verify --man=no /usr/lib/systemd/system/chubbyd.service
must "nothing was started" is ActiveState inactive
must "nothing is enabled" says disabled systemctl is-enabled chubbyd
must "the user" getent passwd chubby
must "the configuration is for the replica to read" says "640 root chubby" stat --format '%a %U %G' /etc/chubby/chubbyd.yaml
systemctl start chubbyd 2>/dev/null
sleep 3
must "it does not run with the configuration that was installed" is ExecMainStatus 78
must "it was not started again" is NRestarts 0
must "it says why" says "chubbyd.yaml: cell is missing" journalctl --no-pager --unit chubbyd

cat >>/etc/chubby/chubbyd.yaml <<'YAML'
cell: main
id: r1
members: [{id: r1, client: "127.0.0.1:7421", raft: "127.0.0.1:7431", http: "127.0.0.1:7441"}]
data: /var/lib/chubby/data
bootstrap: true
insecure: true
audit-file: /var/log/chubby/audit.log
backup-to: /var/lib/chubby/backups
YAML
# Its data have a small disk of their own, which is full for a while below.
must "a disk" mount --mkdir -t tmpfs -o size=256m tmpfs /var/lib/chubby
must "enable and start" systemctl enable --now chubbyd
must "it serves in its sandbox" ready
must "no system call was refused" bash -c '! journalctl --no-pager --unit chubbyd | grep -iE "seccomp|operation not permitted"'
must "its timers are slack" grep -x 500000 "/proc/$(main_pid)/timerslack_ns"
must "it is in the sandbox" grep -E "^(NoNewPrivs|Seccomp):[[:space:]]*[12]" "/proc/$(main_pid)/status"
must "a file is written" chubbyctl put /ls/main/kept 'through the upgrade'
for _ in $(seq 50); do ls /var/lib/chubby/backups/main-*.backup >/dev/null 2>&1 && break; sleep 0.2; done
must "it has taken a backup" ls /var/lib/chubby/backups/main-*.backup
must "the directories are its own alone" says "700 chubby chubby" stat --format '%a %U %G' /var/lib/chubby /var/lib/chubby/backups /var/log/chubby
must "reload" systemctl reload chubbyd
sleep 1
must "it has read the configuration again" says "read the configuration again" journalctl --no-pager --unit chubbyd

# Its disk is full, up to what the log has reserved; clients write until that is used up, and go on, so that each start ends.
dd if=/dev/zero of=/var/lib/chubby/filler bs=1M 2>/dev/null
must "the disk is full" says "100%" df --output=pcent /var/lib/chubby
(while sleep 0.2; do timeout 20 chubbyctl --timeout 5s bench writes --clients 1 --size 256KiB --duration 5s; done >/tmp/bench 2>&1) &
writer=$!
must "it ends when its disk is full" soon bash -c 'journalctl --unit chubbyd | grep "stopped by itself.*the disk is full"'
# An operator tries it as well: for a limit of systemd's these starts count, too.
for _ in 1 2 3 4 5; do timeout 30 systemctl restart chubbyd; done
must "systemd starts it more than five times" started_again 5
must "it takes no more writes" bash -c '! head -c 256K /dev/zero | timeout 10 chubbyctl --timeout 5s put /ls/main/large -'
kill "$writer"
rm /var/lib/chubby/filler
must "it serves again when there is room" ready
must "it takes writes again" soon bash -c 'head -c 256K /dev/zero | chubbyctl --timeout 5s put /ls/main/large -'
must "it is active" is ActiveState active
must "nobody but systemd has started it" started_again 5
must "its file is there" says "through the upgrade" chubbyctl cat /ls/main/kept

before=$(main_pid)
must "upgrade" dpkg --force-confold --install /root/new.deb
must "it runs again" ready
must "by another process" test "$before" != "$(main_pid)"
must "with its data" says "through the upgrade" chubbyctl cat /ls/main/kept
must "and its configuration" grep -qx 'cell: main' /etc/chubby/chubbyd.yaml
systemctl stop chubbyd
must "upgrade of one that does not run" dpkg --force-confold --install /root/new.deb
must "it still does not run" is ActiveState inactive
systemctl start chubbyd
must "remove" dpkg --remove chubby
must "it has stopped" bash -c '! readlink /proc/[0-9]*/exe | grep chubbyd'
must "its unit is gone" bash -c '! systemctl cat chubbyd'
must "no link is left" bash -c '! find /etc/systemd -name chubbyd.service | grep .'
must "the data are kept" ls /var/lib/chubby/data
must "purge says where the data are" says "kept, with the user chubby, to whom they belong: /var/lib/chubby /var/log/chubby" dpkg --purge chubby
must "the data are kept then, too" ls /var/lib/chubby/data
exit $failed
