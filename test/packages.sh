#!/usr/bin/env bash
# Builds a release of HEAD twice, in two places, and compares: then what the packages contain, and what they do on a system that
# is installed for it: install, start, a disk that is full for a while, upgrade, remove, purge. Run by `make verify-packages`, as
# root on Debian, with rpm, lintian, shellcheck, debootstrap and systemd-container installed; it says what it leaves out where
# one of them is missing.
#
# DIST=DIRECTORY checks the release in that directory, and builds none. MIRROR is that of debootstrap, and SYSTEM a directory that
# debootstrap has filled, of which a copy is used.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
ok() { echo "ok    $1"; }
bad() { echo "FAIL  $1"; failed=1; }
skip() { echo "SKIP  $1"; }
# try NAME COMMAND...: the output is shown if it fails.
try() {
	local name=$1
	shift
	if "$@" >"$work/out" 2>&1; then ok "$name"; else
		bad "$name"
		cat "$work/out"
	fi
}
has() { command -v "$1" >/dev/null || { skip "$2: $1 is not installed"; return 1; }; }

try "goreleaser check" go tool -modfile=tools/release/go.mod goreleaser check
if has shellcheck "scripts"; then try "shellcheck" shellcheck deploy/packages/*.sh test/packages*.sh; fi

if [ -n "${DIST:-}" ]; then
	dist=$(realpath "$DIST")
	skip "two builds are compared: DIST is set"
else
	for copy in a b; do
		git clone --quiet . "$work/$copy"
		echo "      building in $copy"
		make -C "$work/$copy" release-snapshot image >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	done
	dist=$work/a/dist
	for copy in a b; do
		(cd "$work/$copy/dist" && find . -maxdepth 1 -type f \( -name 'chubby*' -o -name checksums.txt \) -exec sha256sum {} + | sort -k 2) >"$work/sums-$copy"
	done
	try "two builds of one commit are the same, in all $(wc -l <"$work/sums-a") files" diff "$work/sums-a" "$work/sums-b"
fi
try "checksums.txt" env -C "$dist" sha256sum --check --quiet checksums.txt

processor=$(dpkg --print-architecture)
deb=$(echo "$dist"/chubby_*_"$processor".deb)
rpm=$(echo "$dist"/chubby-*."$(uname -m)".rpm)
root=$work/unpacked
dpkg-deb --extract "$deb" "$root"
for file in usr/bin/chubbyd usr/bin/chubbyctl usr/bin/chubbyctl-recipes etc/chubby/chubbyd.yaml usr/lib/systemd/system/chubbyd.service usr/lib/sysusers.d/chubby.conf \
	usr/share/man/man1/chubbyctl.1.gz usr/share/man/man8/chubbyd.8.gz usr/share/man/man8/chubbyd-serve.8.gz usr/share/man/man5/chubbyd.yaml.5.gz \
	usr/share/bash-completion/completions/chubbyd usr/share/zsh/vendor-completions/_chubbyctl usr/share/fish/vendor_completions.d/chubbyctl.fish \
	usr/share/doc/chubby/copyright usr/share/doc/chubby/CHANGELOG.md.gz; do
	[ -s "$root/$file" ] || bad "the deb has no $file"
done
pages=$(tar -tzf "$dist"/chubby_*_linux_"$processor".tar.gz | grep -E '/man/.')
for page in $pages; do
	[ -s "$root/usr/share/man/man${page##*.}/$(basename "$page").gz" ] || bad "the deb has no manual page $page"
done
try "the deb's configuration is a conffile" grep -x /etc/chubby/chubbyd.yaml <(dpkg-deb --info "$deb" conffiles)
commit=$(git rev-parse HEAD)
for program in chubbyd chubbyctl; do
	said=$("$root/usr/bin/$program" version)
	case $said in
	*local\ changes* | *unknown*) bad "$program does not say what it was built from: $said" ;;
	*"$commit"*) ok "$program says its version: $(head -n 1 <<<"$said")" ;;
	*) [ -n "${DIST:-}" ] || bad "$program was not built from $commit: $said" ;;
	esac
done
if has lintian "the deb"; then try "lintian" lintian --allow-root --fail-on error,warning "$deb"; fi
if has rpm "the rpm"; then
	rpm -qp --nosignature --qf '[%{FILENAMES} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILEFLAGS:fflags}\n]' "$rpm" >"$work/rpm"
	try "the rpm's configuration is noreplace, of the group chubby" grep -xE '/etc/chubby/chubbyd.yaml root:chubby cn' "$work/rpm"
	for file in /usr/bin/chubbyd /usr/bin/chubbyctl /usr/bin/chubbyctl-recipes /usr/lib/systemd/system/chubbyd.service /usr/share/man/man8/chubbyd.8.gz /usr/share/zsh/site-functions/_chubbyd; do
		grep -q "^$file " "$work/rpm" || bad "the rpm has no $file"
	done
fi

if has systemd-analyze "the unit"; then
	unit=usr/lib/systemd/system/chubbyd.service
	try "systemd-analyze security: below 2.0" systemd-analyze security --offline=true --threshold=20 --no-pager "$root/$unit"
fi

# The rest happens on a system of its own.
if [ "$(id -u)" != 0 ]; then
	skip "install, start, upgrade, remove: this is not root"
elif has debootstrap "install, start, upgrade, remove" && has systemd-nspawn "install, start, upgrade, remove"; then
	system=$work/system
	# shellcheck disable=SC2016 # apt-get fills it in
	mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)}
	if [ -n "${SYSTEM:-}" ]; then cp -a "$SYSTEM" "$system"; else
		debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps bookworm "$system" "$mirror" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	fi
	cp "$deb" "$system/root/old.deb"
	# The same package with a higher version is the upgrade.
	dpkg-deb --raw-extract "$deb" "$work/newer"
	sed -i 's/^Version: .*/&+newer/' "$work/newer/DEBIAN/control"
	dpkg-deb --root-owner-group --build "$work/newer" "$system/root/new.deb" >/dev/null
	cp test/packages-inside.sh "$system/root/"
	cat >"$system/etc/systemd/system/packages-test.service" <<-'UNIT'
		[Unit]
		Description=Tries the packages
		[Service]
		Type=oneshot
		TimeoutStartSec=300
		ExecStart=/bin/sh -c '/root/packages-inside.sh >/root/result 2>&1; echo "exit $?" >>/root/result'
		ExecStopPost=/bin/systemctl --no-block poweroff
	UNIT
	mkdir -p "$system/etc/systemd/system/multi-user.target.wants"
	ln -s ../packages-test.service "$system/etc/systemd/system/multi-user.target.wants/"
	timeout --foreground 360 systemd-nspawn --quiet --register=no --keep-unit --private-network --directory="$system" --boot \
		>"$work/console" 2>&1 </dev/null || true
	if [ -s "$system/root/result" ]; then cat "$system/root/result"; else
		bad "the system did not start"
		tail -n 20 "$work/console"
	fi
	grep -qx "exit 0" "$system/root/result" || bad "install, start, upgrade, remove"
fi
[ "$failed" = 0 ] && echo "the packages hold"
exit "$failed"
