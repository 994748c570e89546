#!/bin/sh
# rpm runs this before there are files: some of them belong to the group chubby.
set -e
if ! getent passwd chubby >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/chubby --no-create-home --shell /sbin/nologin \
		--comment "Chubby lock service" chubby
fi
