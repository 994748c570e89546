#!/bin/sh
# dpkg and rpm run this when the files are gone. What the replica has written is never removed: it may be the last copy, and a
# replica that has lost its data is not let in again.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --system daemon-reload
	fi
	;;
esac
case "$1" in
purge | 0) ;;
*) exit 0 ;;
esac
kept=
for dir in /etc/chubby /var/lib/chubby /var/log/chubby; do
	if [ -n "$(ls -A "$dir" 2>/dev/null)" ]; then
		kept="$kept $dir"
	fi
done
if [ -n "$kept" ]; then
	echo "These are kept, with the user chubby, to whom they belong:$kept"
	echo "Remove them when the replica has left its cell (chubbyctl cell remove), and nobody needs them any more."
fi
