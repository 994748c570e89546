package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"time"
)

// standIn is a command of the pages that cannot run here, and what stands for it.
type standIn struct {
	command string
	why     string
	script  string // of sh
}

//go:embed systemctl.sh
var systemctl string

// standIns is the whole list. Everything else in the pages runs as it is written.
func standIns() []standIn {
	return []standIn{
		{"make", "the binaries are built before, and the directory is not the source", `[ "$*" = build ] && cp -r /mnt/source/. .`},
		{"systemctl", "no systemd runs in the hosts: what the unit says is started, as it says", systemctl},
		{"journalctl", "and keeps what it prints", `case "$*" in
"--unit chubbyd --follow") exec tail -n +1 --retry --follow=name /var/log/journal/chubbyd 2>/dev/null ;;
"--unit chubbyd") exec cat /var/log/journal/chubbyd ;;
*) echo "journalctl $*: not understood" >&2; exit 2 ;;
esac`},
		{"scp", "no sshd runs in the hosts: their files are below /mnt of this machine alone", `recursive=
if [ "$1" = -r ]; then recursive=-r; shift; fi
there() {
	case "$1" in
	root@chubby?.example.org:*)
		host=${1#root@}; file=${1#*:}; host=/mnt/${host%%.*}
		case "$file" in
		/usr/local/bin/*) echo "$host/bin/${file#/usr/local/bin/}" ;;
		/etc/* | /var/*) echo "$host$file" ;;
		esac ;;
	*@* | *:*) ;;
	*) echo "$1" ;;
	esac
}
for last; do :; done
to=$(there "$last")
[ -n "$to" ] || { echo "scp: $last: no such host or directory" >&2; exit 1; }
while [ $# -gt 1 ]; do
	from=$(there "$1")
	[ -n "$from" ] || { echo "scp: $1: no such host or directory" >&2; exit 1; }
	cp $recursive -- "$from" "$to"
	shift
done`},
	}
}

// writeStandIns puts them where the hosts look first, and what the pages take out of the source where make finds it.
func (w *world) writeStandIns() error {
	dir, bin, units := filepath.Join(w.dir, "standins"), filepath.Join(w.dir, "source", "bin"), filepath.Join(w.dir, "source", "deploy", "systemd")
	for _, made := range []string{dir, bin, units} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			return err
		}
	}
	for _, s := range standIns() {
		if err := os.WriteFile(filepath.Join(dir, s.command), []byte("#!/bin/sh\nset -e\n"+s.script+"\n"), 0o755); err != nil { //nolint:gosec // it is run
			return err
		}
	}
	return shell("cp " + w.bin + "/chubbyd " + w.bin + "/chubbyctl " + bin + " && cp " + w.units + "/chubbyd.service " + units)
}

// patience bounds the whole run.
const patience = 15 * time.Minute
