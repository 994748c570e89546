#!/bin/sh
# dpkg and rpm run this when the files are there. It never starts a replica that did not run: that is for the operator, who
# knows the cell.
set -e
case "$1" in
configure) before=$2 ;; # dpkg: the version of before, or nothing
1) before= ;;           # rpm: so many are installed now
[2-9]) before=another ;;
*) exit 0 ;;
esac

if [ "$1" = configure ]; then # rpm has done it before there were files
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers chubby.conf
	elif ! getent passwd chubby >/dev/null; then
		useradd --system --user-group --home-dir /var/lib/chubby --no-create-home --shell /usr/sbin/nologin \
			--comment "Chubby lock service" chubby
	fi
	if [ -z "$before" ]; then # later it is as the operator wants it
		chgrp chubby /etc/chubby /etc/chubby/chubbyd.yaml
	fi
fi

if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload
	if [ -n "$before" ] && systemctl --quiet is-active chubbyd.service; then
		if command -v deb-systemd-invoke >/dev/null; then
			deb-systemd-invoke restart chubbyd.service
		else
			systemctl restart chubbyd.service
		fi || echo "chubbyd did not start again; see: journalctl --unit chubbyd" >&2
	fi
fi

if [ -z "$before" ]; then
	echo "No replica was started. Edit /etc/chubby/chubbyd.yaml, and then: systemctl enable --now chubbyd"
fi
