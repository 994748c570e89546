#!/bin/sh
# dpkg and rpm run this while the files are still there. An upgrade leaves the replica running.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	if command -v deb-systemd-invoke >/dev/null; then
		deb-systemd-invoke stop chubbyd.service
	else
		systemctl stop chubbyd.service
	fi
fi
if command -v systemctl >/dev/null; then # else a link to a unit that is not there would be left
	systemctl --quiet disable chubbyd.service || true
fi
