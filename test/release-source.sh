#!/usr/bin/env bash
# Keeps the source of a release, a tag, in e2e/testdata (make release-source REF=v0.2.0): the files of which chubbyd and chubbyctl
# are built. From it, e2e.TestRollingUpgrade builds the version from which a cell is upgraded: a clone without history, or a copy
# without git, can build it, too. The archive of the previous release goes: upgrades are tested from the newest one. With --check,
# as in make test-more, the script compares the archive that is kept with its tag, if git has that.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off

# write_source REF DIR writes the files of which a release is built, for any system.
write_source() {
	local tree=$work/tree
	mkdir "$tree" "$2"
	git archive --format=tar "$1" | tar -x -C "$tree"
	{
		printf '%s\n' go.mod go.sum LICENSE
		(cd "$tree" && module=$(go list -m) && go list -deps -f '{{.ImportPath}}' ./cmd/chubbyd ./cmd/chubbyctl |
			sed -n "s|^$module/||p" | while read -r dir; do find "$dir" -maxdepth 1 -name '*.go' ! -name '*_test.go'; done)
	} | LC_ALL=C sort >"$work/files"
	tar -c -C "$tree" -T "$work/files" | tar -x -C "$2"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${1-} in
--check)
	archive=$(ls e2e/testdata/release-*.tar.gz)
	ref=${archive#*/release-} ref=${ref%.tar.gz}
	if ! git rev-parse --verify --quiet "$ref^{commit}" >/dev/null; then
		echo "release-source: git does not have $ref here, so $archive was compared with nothing"
		exit
	fi
	write_source "$ref" "$work/want"
	mkdir "$work/has"
	tar -xzf "$archive" -C "$work/has"
	diff -r "$work/want" "$work/has" || { echo "release-source: $archive is not $ref; make release-source REF=$ref writes it anew" >&2; exit 1; }
	;;
"" | */* | *" "*)
	echo "release-source: \"${1-}\": want the tag of a release, as in make release-source REF=v0.1.0" >&2
	exit 1
	;;
*)
	write_source "$1" "$work/source"
	# The bytes depend on the files alone.
	tar -c --format=ustar --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=0644 -C "$work/source" -T "$work/files" | gzip -9n >"$work/archive"
	rm -f e2e/testdata/release-*.tar.gz
	mv "$work/archive" "e2e/testdata/release-$1.tar.gz"
	;;
esac
