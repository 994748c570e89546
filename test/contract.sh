#!/usr/bin/env bash
# Exercises what users type and read, on a live cell: every verb and every flag
# that chubbyctl's help names is tried, and the JSON fields and exit codes that
# scripts may depend on. It starts a cell with 'chubbyd
# dev' in an empty directory, on the default ports, and stops it. Run it with
# 'make contract', which builds the binaries; it needs Go, bash, jq and curl.
#
# Each check prints one line. The script ends with 1 if any failed.
set -uo pipefail

# Under nohup hangups would be ignored, and what this sends to commands with them. A shell cannot undo that.
[ -n "${HANGUPS:-}" ] || HANGUPS=1 exec env --default-signal=HUP "$0" "$@"

bin=$(cd "$(dirname "$0")/../bin" && pwd) || exit 1
for tool in jq curl; do
	command -v "$tool" >/dev/null || { echo "contract: $tool is not installed (Debian: apt install $tool)" >&2; exit 1; }
done
s3=$(cd "$bin/.." && go tool -modfile=tools/s3/go.mod -n versitygw) || exit 1 # a server that speaks S3
work=$(mktemp -d)
cd "$work" || exit 1
export HOME=$work NO_COLOR=1 CHUBBYD_DISK_STALL=1m # all replicas are on one disk
unset CHUBBY_CELLS CHUBBY_CONFIG CHUBBY_DOMAIN CHUBBY_CACERT CHUBBY_CERT CHUBBY_KEY CHUBBY_TOKEN_FILE

dev=
checks=0
failed=0
cleanup() {
	jobs -p | xargs -r kill 2>/dev/null
	[ -n "$dev" ] && wait "$dev" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT

ok() { checks=$((checks + 1)); printf 'ok    %s\n' "$1"; }
bad() {
	checks=$((checks + 1)); failed=$((failed + 1))
	printf 'FAIL  %s\n' "$1"
	[ -s out ] && sed 's/^/      out: /' out
	[ -s err ] && sed 's/^/      err: /' err
}

# Each run of chubbyctl is noted as a line of this file, so that the end can tell
# what was never tried. A command line that was not understood (exit 2) is no
# trial.
typed=$work/typed
tried() { local one; for one in "$@"; do printf ' %s' "${one//$'\n'/ }"; done >>"$typed"; echo ' ' >>"$typed"; }
chubbyctl() {
	local status
	timeout 180 "$bin/chubbyctl" "$@"
	status=$?
	[ "$status" = 2 ] || tried "$@"
	return "$status"
}

# ctl EXIT ARG... runs chubbyctl, which is to end with that exit code.
ctl() {
	local want=$1 got
	shift
	chubbyctl "$@" >out 2>err </dev/null
	got=$?
	if [ "$got" = "$want" ]; then ok "chubbyctl $* -> $got"; else bad "chubbyctl $* -> $got, want $want"; fi
}

# out, err: what the last command printed matches an extended regular expression.
out() { if grep -Eq -- "$1" out; then ok "  prints $1"; else bad "  prints $1"; fi; }
err() { if grep -Eq -- "$1" err; then ok "  says $1"; else bad "  says $1"; fi; }

# full EXIT ARG... and unread EXIT ARG... run it with standard output on a full disk, and in a pipe whose reader has gone: ${gone} writes to one.
onto() {
	local where=$1 want=$2 got
	shift 2
	chubbyctl "$@" >&"$where" 2>err </dev/null
	got=$?
	: >out
	if [ "$got" = "$want" ]; then ok "chubbyctl $*, unwritten -> $got"; else bad "chubbyctl $*, unwritten -> $got, want $want"; fi
}
mkfifo fifo && exec {reading}<>fifo {gone}>fifo {full}>/dev/full && exec {reading}<&- && rm fifo
full() { onto "$full" "$@"; }
unread() { onto "$gone" "$@"; }

# fields FILE FIELD...: the first object of the file has these, whatever they are.
fields() {
	local file=$1 field
	shift
	for field in "$@"; do
		if head -n 1 "$file" | jq -e --arg f "$field" '
			reduce ($f | split("."))[] as $k ({v: ., ok: true};
				if (.v | type) == "object" and (.v | has($k)) then {v: .v[$k], ok: .ok}
				elif (.v | type) == "array" and ($k | test("^[0-9]+$")) and (.v | length) > ($k | tonumber) then {v: .v[$k | tonumber], ok: .ok}
				else {v: null, ok: false} end) | .ok' >/dev/null 2>&1; then
			ok "  has $field"
		else
			bad "  has $field"
		fi
	done
}

# is FILTER VALUE: of the last output.
is() {
	local got
	got=$(head -n 1 out | jq -c "$1" 2>&1)
	if [ "$got" = "$2" ]; then ok "  $1 is $2"; else bad "  $1 is $got, want $2"; fi
}

# commands PATH prints every command at and below one, as its help lists them;
# options PATH SECTION the flags that a section of its help has.
# shellcheck disable=SC2086
helped() { "$bin/chubbyctl" $1 --help; }
commands() {
	local sub found=
	for sub in $(helped "$1" | awk '/^Available Commands:/ {f = 1; next} /^$/ {f = 0} f && /^  [^ ]/ {print $1}'); do
		commands "${1:+$1 }$sub"; found=1
	done
	[ -n "$found" ] || echo "$1"
}
options() {
	helped "$1" | awk -v section="$2" '$0 == section {f = 1; next} /^$/ {f = 0} f' |
		grep -oE -- '^ {2,6}(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+' | grep -vx -e --help
}
# was_tried COMMAND FLAG: in one line; the flag may be empty. The second grep reads to the end: one that ended at the first match
# would have SIGPIPE end the first, which is a failure here (pipefail).
was_tried() { grep -E -- "^( -[^ ]+( [^- ][^ ]*)?)* $1 " "$typed" | grep -E -- "${2:+ $2[ =]}" >/dev/null; }

# until_true SECONDS COMMAND...: polls until the command succeeds, for a minute longer than it takes on an idle machine.
until_true() {
	local end=$((SECONDS + $1 + 60))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}
holds() { if until_true "$1" "${@:3}"; then ok "$2"; else bad "$2"; fi; }

# background NAME ARG... runs chubbyctl beside; its output is in NAME.out, NAME.err.
# A shell has what it runs in the background ignore SIGINT, which a terminal's job
# does not.
background() {
	local name=$1
	shift
	tried "$@"
	: >"$name.out" # the shell in the background does so later: until then there would be what an earlier one has written
	env --default-signal=INT,QUIT "$bin/chubbyctl" "$@" >"$name.out" 2>"$name.err" </dev/null &
	pid=$!
}
finished() { ! kill -0 "$1"; }
ends() { # PID EXIT WHAT
	local got
	until_true 60 finished "$1" || { : >out; bad "$3 does not end"; kill -9 "$1"; }
	wait "$1" 2>/dev/null; got=$?
	: >out; : >err
	if [ "$got" = "$2" ]; then ok "$3 -> $got"; else bad "$3 -> $got, want $2"; fi
}

echo "== chubbyd"
"$bin/chubbyd" version >out 2>err && ok "chubbyd version" || bad "chubbyd version"
"$bin/chubbyd" --version >out 2>err && ok "chubbyd --version" || bad "chubbyd --version"
"$bin/chubbyd" version -o json >out 2>err && ok "chubbyd version -o json" || bad "chubbyd version -o json"
fields out version commit raft go system
for shell in bash zsh fish powershell; do "$bin/chubbyd" completion "$shell" >out 2>err && grep -q chubbyd out && ok "chubbyd completion $shell" || bad "chubbyd completion $shell"; done
"$bin/chubbyd" config example >example.yaml 2>err && ok "chubbyd config example" || bad "chubbyd config example"
"$bin/chubbyd" config check example.yaml >out 2>err && ok "chubbyd config check takes the example" || bad "chubbyd config check takes the example"
printf 'cell: "a b"\nnonsense: 1\nid: ""\n' >faulty.yaml
"$bin/chubbyd" config check faulty.yaml >out 2>err && bad "chubbyd config check refuses faults" || ok "chubbyd config check refuses faults"
err 'faulty.yaml:1:7: cell'; err 'faulty.yaml:2:1: nonsense'
"$bin/chubbyd" config show --config example.yaml --log-level warn >out 2>err && ok "chubbyd config show" || bad "chubbyd config show"
out 'log-level: warn .*# --log-level'; out 'example.yaml:'
"$bin/chubbyd" serve --help >out 2>&1; for key in config id data members; do out "--$key "; done
out '--bootstrap'
"$bin/chubbyd" serve --insecure --cell c --id r1 --data empty --members 'r1=127.0.0.1:9521,127.0.0.1:9531' >out 2>err
got=$?
if [ $got = 78 ]; then ok "chubbyd serve refuses an empty directory -> 78"; else bad "chubbyd serve refuses an empty directory -> $got, want 78"; fi
err 'bootstrap: true'
"$bin/chubbyd" serve --insecure --console --cell c --id r1 --data empty --members 'r1=127.0.0.1:9521,127.0.0.1:9531,192.0.2.1:9541' >out 2>err
got=$?
if [ $got = 78 ]; then ok "chubbyd serve --console refuses strangers in the clear -> 78"; else bad "chubbyd serve --console refuses strangers in the clear -> $got, want 78"; fi
err 'console: .*this machine alone'
"$bin/chubbyd" dev --help >out 2>&1; for key in cell replicas data base-port tls no-restart; do out "--$key"; done

"$bin/chubbyd" dev >dev.out 2>dev.err &
dev=$!
if ! until_true 30 grep -Eq '^ready: cell local, master r[1-5] at 127.0.0.1:742[1-5]' dev.out; then
	cp dev.out out; cp dev.err err
	bad "chubbyd dev is ready"
	exit 1
fi
ok "chubbyd dev: $(grep ^ready dev.out)"
cp .chubby/local/dev.json out
fields out cell replicas.0.id replicas.0.pid replicas.0.client replicas.0.raft replicas.0.http
is .replicas[4].client '"127.0.0.1:7425"'; is .replicas[0].raft '"127.0.0.1:7431"'; is .replicas[0].http '"127.0.0.1:7441"'
for page in healthz readyz metrics; do
	curl -fsS "http://127.0.0.1:7441/$page" >out 2>err && ok "/$page" || bad "/$page"
done
out '^chubby_'
curl -fsSL "http://127.0.0.1:7441/" >out 2>err && ok "the console of chubbyd dev" || bad "the console of chubbyd dev"
out 'Healthy replicas'
curl -sS -H 'Host: evil.example' -o out -w '%{http_code}\n' "http://127.0.0.1:7441/console/" >status 2>err
if [ "$(cat status)" = 421 ]; then ok "the console is no other host's -> 421"; else bad "the console is no other host's -> $(cat status), want 421"; fi
victim=$(jq '.replicas[1].pid' .chubby/local/dev.json)
kill -9 "$victim"
restarted() { [ "$(jq '.replicas[1].pid' .chubby/local/dev.json)" != "$victim" ]; }
holds 10 "a replica that is killed is started again" restarted
"$bin/chubbyd" dev --data other >out 2>err && bad "a second dev on the same ports is refused" || ok "a second dev on the same ports is refused"
err '742|743|744'
"$bin/chubbyd" dev --base-port 9421 >out 2>err && bad "a second dev on the same data is refused" || ok "a second dev on the same data is refused"
err 'chubby/local|in use|lock'

echo "== finding a cell"
ctl 0 --servers 127.0.0.1:7421,127.0.0.1:7422 ls
CHUBBY_CELLS='local=127.0.0.1:7423;bar=127.0.0.1:1' ctl 0 ls
printf 'local: {servers: [127.0.0.1:7424]}\n' >cells.yaml
CHUBBY_CONFIG=$work/cells.yaml ctl 0 ls
mkdir -p .config/chubby && cp cells.yaml .config/chubby/cells.yaml
ctl 0 ls
rm -r .config
ctl 0 ls # by the default ports
CHUBBY_CELLS='main=127.0.0.1:1' ctl 1 ls /ls/man; err 'man is not configured.* name main'
ctl 0 put told 'relative'; ctl 0 cat /ls/local/told; out '^relative$'; ctl 0 rm /told
ctl 2 cat ''; ctl 2 cat ls/local/told; ctl 2 cat /ls; ctl 2 put $'cafe\u0301' x; err 'write it as "caf.u00e9"'
ctl 0 config current; out '^local$'
CHUBBY_CELLS='main=127.0.0.1:7421' ctl 0 -v config current; out '^main$'; err 'only one that is configured'
export CHUBBY_CELLS='local=127.0.0.1:7421;bar=127.0.0.1:1'
ctl 2 config use-cell man; err 'bar, local'; ctl 2 config use-cell 'a b'; err "not a cell's name"; CHUBBY_DOMAIN=example.org ctl 0 config use-cell man
ctl 0 config use-cell bar; out '^bar$'
ctl 0 -v config current; out '^bar$'; err 'chosen by .*/chubbyctl.yaml'
ctl 0 -o json config current; is .cell '"bar"'; fields out by
ctl 69 cat told; err '/ls/bar'
CHUBBY_CELL=local ctl 0 ls; ctl 0 --cell local ls; ctl 69 ls /ls/local; err /ls/bar; ctl 0 --servers 127.0.0.1:7421 ls
ctl 0 config cells; out '^bar +default +127.0.0.1:1'; out '^local '
ctl 0 -o json config cells; fields out cell default servers; is .default true
unset CHUBBY_CELLS
ctl 0 config add-cell bar 127.0.0.1:1; out '^bar is in '; ctl 2 config add-cell bar 127.0.0.1:2; err 'remove-cell bar'; ctl 0 config ls; out '^bar .*127.0.0.1:1$'
ctl 0 -o json config add-cell bar 127.0.0.1:1; fields out cell file
ctl 0 config remove-cell bar; out 'no longer in'; ctl 2 config remove-cell bar; err 'bar is not in'
echo 'cell: [' >.config/chubby/chubbyctl.yaml; ctl 2 ls; err 'malformed'
ctl 0 config use-cell local; ctl 0 ls
rm -r .config
ctl 1 --servers 127.0.0.1:7421 ls /ls/other; err 'local'
ctl 1 -o json --servers 127.0.0.1:7421 ls /ls/other; cp err out; is .error.code '"WrongCell"'; is .error.cell '"local"'

echo "== verbs"
ctl 0 --version; out '^chubbyctl '; ctl 0 help exit-codes; out '^  69 '; ctl 0 help environment; out '^  CHUBBY_CELLS '
"$bin/chubbyctl" --help >out 2>&1
for verb in acquire elect semaphore members ls tree cat put txn mkdir rm stat touch cp export import watch top locks history explain lint lock sequencer session whoami acl cell bench config completion; do out "^  $verb "; done

echo "== files"
ctl 0 mkdir /ls/local/d
ctl 0 put /ls/local/d/f 'hello'
ctl 0 cat /ls/local/d/f; [ "$(cat out)" = hello ] && [ "$(wc -c <out)" = 5 ] && ok "  the bytes exactly" || bad "  the bytes exactly"
printf 'a\0b\n' >bytes; chubbyctl put /ls/local/d/bytes - <bytes >out 2>err && ok "put - reads stdin" || bad "put - reads stdin"
"$bin/chubbyctl" cat /ls/local/d/bytes >got; cmp -s bytes got && ok "  and keeps every byte" || bad "  and keeps every byte"
ctl 0 stat /ls/local/d/f
ctl 0 -o json stat /ls/local/d/f
fields out path kind ephemeral instance content_generation lock_generation acl_generation checksum size children acl.read acl.write acl.change
is .path '"/ls/local/d/f"'; is .kind '"file"'; is .size 5
generation=$(jq .content_generation out)
ctl 0 put /ls/local/d/f 'again' --if-generation "$generation"
ctl 3 put /ls/local/d/f 'never' --if-generation "$generation"; err 'generation'
ctl 3 put /ls/local/d/f 'never' --if-absent; err 'exists already'; ctl 0 put /ls/local/d/absent 'now' --if-absent; ctl 2 put /ls/local/d/f x --if-absent --if-generation 7; err 'choose one'
ctl 1 rm /ls/local/d/absent /ls/local/d/no /ls/local/d/f; err 'd/no: .*; not done: /ls/local/d/f$'; ctl 0 cat /ls/local/d/f; ctl 1 rm /ls/local/d; err 'rm -r /ls/local/d.* says what there is'
ctl 3 -o json put /ls/local/d/f 'never' --if-generation "$generation"; cp err out; is .error.code '"GenerationMismatch"'; fields out error.current
ctl 0 touch /ls/local/d/empty
ctl 0 mkdir -p /ls/local/deep/er; ctl 0 mkdir --parents /ls/local/deep/er
ctl 0 ls --long /ls/local/d; out 'f'
ctl 0 tree --depth 1 /ls/local; if grep -q ' er$' out; then bad "  no deeper"; else ok "  no deeper"; fi
ctl 0 cp /ls/local/d/f /ls/local/d/copy
ctl 0 cat /ls/local/d/copy; out '^again$'
ctl 3 cp --if-absent /ls/local/d/f /ls/local/d/copy
ctl 0 cp --if-absent /ls/local/d/f /ls/local/d/second; ctl 0 rm /ls/local/d/second
generation=$("$bin/chubbyctl" -o json stat /ls/local/d/copy | jq .content_generation)
ctl 0 cp /ls/local/d/f /ls/local/d/copy --if-generation "$generation"
ctl 3 cp /ls/local/d/f /ls/local/d/copy --if-generation "$generation"
ctl 0 ls /ls/local/d; out '^copy$'
ctl 0 -o json ls /ls/local/d; fields out path kind
ctl 0 tree /ls/local; out 'copy'
ctl 0 -o json tree /ls/local; fields out path kind
ctl 0 -o json cat /ls/local/d/f; is .contents '"again"'
ctl 0 -o yaml cat /ls/local/d/f; out '^---$'; out '^contents: "again"$'
ctl 1 -o yaml cat /ls/local/d/nosuch; cp err out; out '^  code: "NotFound"$'; out '^  exit: 1$'
ctl 2 -o yaml ls --no-such-flag; cp err out; out '^  exit: 2$'
background ephemeral put /ls/local/d/here up --ephemeral; ephemeral=$pid
holds 10 "put --ephemeral stays" "$bin/chubbyctl" stat /ls/local/d/here
ctl 0 -o json stat /ls/local/d/here; is .ephemeral true
kill "$ephemeral"; wait "$ephemeral"
gone() { ! "$bin/chubbyctl" stat "$1"; }
holds 15 "  and its file goes with it" gone /ls/local/d/here
ctl 0 rm /ls/local/d/copy
ctl 1 cat /ls/local/d/copy; err 'chubbyctl: '
ctl 1 -o json cat /ls/local/d/copy; cp err out; fields out error.code error.message; is .error.code '"NotFound"'
ctl 1 rm /ls/local/d; err 'children|empty'
ctl 0 mkdir -p /ls/local/whole/a/b; ctl 0 put /ls/local/whole/a/b/c three; ctl 0 put /ls/local/whole/one 1
ctl 0 export /ls/local/whole; cp out whole.jsonl; is .chubby_export 1; out '^\{"end":true,"nodes":5\}$'; out '"path":"a/b/c","kind":"file","contents":"three"'
imports() { local want=$1 got; shift; chubbyctl import "$@" >out 2>err <whole.jsonl; got=$?; if [ $got = "$want" ]; then ok "chubbyctl import $* -> $got"; else bad "chubbyctl import $* -> $got, want $want"; fi; }
imports 0 /ls/local/imported -v; err 'imported 5 nodes'; ctl 0 cat /ls/local/imported/a/b/c; out '^three$'
imports 0 /ls/local/imported --acl -o json; is .path '"/ls/local/imported"'
ctl 0 put /ls/local/imported/one other; imports 1 /ls/local/imported; err 'left out: /ls/local/imported/one'
imports 0 /ls/local/imported --overwrite; ctl 0 cat /ls/local/imported/one; out '^1$'
replicas=$(jq -r '.replicas[].pid' .chubby/local/dev.json) # a change that is sent, and not answered
{ head -n 2 whole.jsonl; sleep 2; kill -STOP $replicas; tail -n +3 whole.jsonl; } | chubbyctl --timeout 3s -o json import /ls/local/uncertain >out 2>err; got=$?; kill -CONT $replicas
[ $got = 76 ] && ok "a change without an answer -> 76" || bad "a change without an answer -> $got, want 76"; err '"code":"Uncertain"'; ctl 0 rm -r /ls/local/uncertain --yes
head -n 3 whole.jsonl >cut; mv cut whole.jsonl; imports 1 /ls/local/imported; err 'was cut'
imports 2 /ls/local/acl/x; imports 1 /ls/local/no/where; ctl 1 export /ls/local/nosuch
ctl 0 rm -r /ls/local/imported --yes
background ephemeral put /ls/local/whole/a/here up --ephemeral; ephemeral=$pid
holds 10 "an ephemeral file below" "$bin/chubbyctl" stat /ls/local/whole/a/here
ctl 0 ls -R /ls/local/whole; out '^/ls/local/whole/a/b/c$'; out '^/ls/local/whole/a/b/$'
ctl 0 ls --recursive -l /ls/local/whole; out '^KIND'; out ' /ls/local/whole/one$'
ctl 0 -o json ls -R /ls/local/whole; fields out path kind
ctl 1 cp -r /ls/local/whole /ls/local/copied; err 'left out: /ls/local/whole/a/here: it is ephemeral'; err 'copied 5 nodes'
ctl 0 cat /ls/local/copied/a/b/c; out '^three$'
ctl 1 cp --recursive --if-absent /ls/local/whole/a/b /ls/local/copied/a; err 'left out: .*exists already'
ctl 2 cp -r /ls/local/whole /ls/local/whole/a; err 'inside'
ctl 2 rm -r /ls/local/whole; err '2 files and 3 directories, and 1 ephemeral node'; err 'Nothing was deleted'
ctl 1 rm -r /ls/local/whole --yes; err 'left out: /ls/local/whole/a/here'; ctl 0 stat /ls/local/whole/a/here
ctl 0 -o json rm --recursive /ls/local/copied --yes; is .path '"/ls/local/copied/a/b/c"'; is .deleted true
ctl 1 stat /ls/local/copied
kill "$ephemeral"; wait "$ephemeral"; holds 15 "  it is gone" gone /ls/local/whole/a/here
ctl 0 -v rm -r /ls/local/whole --yes; err 'deleted 2 nodes'
ctl 2 rm -r / --yes; ctl 2 rm -r /acl --yes

echo "== watch"
background watch watch /ls/local/d/f --children --exec 'echo hook >>hook.out'; watch=$pid
holds 10 "watch begins" grep -q watching watch.err
ctl 0 put /ls/local/d/f 'changed'
holds 10 "  prints the event" grep -q contents-modified watch.out
holds 10 "  and runs CMD" grep -q hook hook.out
kill -INT "$watch"; ends "$watch" 0 "  until Ctrl-C"
background watchjson -o json watch /ls/local/d --children; watch=$pid
holds 10 "watch -o json begins" grep -q watching watchjson.err
ctl 0 touch /ls/local/d/new
holds 10 "  prints objects" grep -q child-added watchjson.out
cp watchjson.out out; fields out event path child generation
ctl 0 cell transfer
holds 15 "  says that another master has taken over" grep -q master-failed-over watchjson.out
kill -INT "$watch"; wait "$watch"
background contents -o json watch /ls/local/d/f --contents --count 1 --exec 'cat >stdin.out'; contents=$pid
holds 10 "watch --contents begins" grep -q watching contents.err
ctl 0 put /ls/local/d/f 'told'
ends "$contents" 0 "watch --contents"
cp contents.out out; is .contents '"told"'; fields out time content_generation contents_base64
cp stdin.out out; is .contents '"told"'
ctl 2 watch /ls/local/d --contents -o json --count 1; err 'directory'
background several -o json watch /ls/local/d /ls/local/d/f --count 1; several=$pid
holds 10 "watch of two paths begins" grep -q watching several.err
ctl 0 put /ls/local/d/f four; ends "$several" 0 "watch of two paths"; cp several.out out; fields out path; out '"path":"/ls/local/d/f"'
background treewatch watch /ls/local/d --tree --contents=base64 --settle 100ms --settle-at-most 1s --count 1 --exec 'cat >tree.stdin'; treewatch=$pid
holds 10 "watch --tree begins" grep -q 'everything below' treewatch.err
ctl 0 put /ls/local/d/f four; ctl 0 put /ls/local/d/f five
ends "$treewatch" 0 "watch --tree --settle"; cp tree.stdin out; fields out path contents_base64 content_generation
ctl 2 watch /ls/local/d --settle 1s; ctl 2 watch /ls/local/d --exec date --settle-at-most 1s
background counted watch /ls/local/d --events child-added,child-removed --count 1 --initial --exec 'echo "$CHUBBY_EVENT" >>initial.out'; counted=$pid
holds 10 "watch --initial runs CMD at once" grep -q initial initial.out
ctl 0 touch /ls/local/d/newer
ends "$counted" 0 "watch --count 1"

echo "== acquire"
ctl 7 acquire /ls/local/job -- sh -c '[ "$CHUBBY_LOCK" = /ls/local/job ] && [ -n "$CHUBBY_SEQUENCER" ] && [ "$CHUBBY_TOKEN" -gt 0 ] && [ -n "$CHUBBY_SESSION" ] && exit 7'
ctl 0 stat /ls/local/job # a permanent file
ctl 127 acquire /ls/local/nothing -- no-such-command; ctl 1 stat /ls/local/nothing
ctl 126 acquire /ls/local/nothing -- /dev/null
ctl 2 acquire; ctl 2 acquire /ls/local/job true; ctl 2 acquire /ls/local/job --lease 1h -- true; err '--lease'
ctl 2 acquire /ls/local/job --lease 1s --lock-delay 0 --kill-after 5s -- true; err 'kill-after'
ctl 2 no-such-verb; ctl 2 ls --no-such-flag; ctl 2 -o xml ls
background holder -o json acquire /ls/local/held --reason 'nightly backup' --lease 5s --lock-delay 3s --sequencer-file seq; holder=$pid
holds 10 "acquire without CMD prints and holds" test -s holder.out
cp holder.out out; fields out path mode sequencer token session epoch; is .mode '"exclusive"'
sequencer=$(jq -r .sequencer holder.out); session=$(jq -r .session holder.out)
[ "$(cat seq)" = "$sequencer" ] && ok "  and keeps the sequencer file" || bad "  and keeps the sequencer file"
ctl 75 acquire /ls/local/held --try -- true; err 'nightly backup'; err '(for|since) '
ctl 75 -o json acquire /ls/local/held --try; cp err out; is .error.code '"LockHeld"'; fields out error.holders.0.session error.holders.0.since_s error.holders.0.reason
ctl 124 acquire /ls/local/held --wait 1s -- true
for wait in 0 1ms 5ms; do ctl 124 acquire /ls/local/held --wait $wait -- true; done
ctl 0 acquire /ls/local/held --try --busy-exit-code 0 -- true; err 'nightly backup'; ctl 9 acquire /ls/local/held --wait 1ms --busy-exit-code 9 -- true; ctl 2 acquire /ls/local/held --busy-exit-code 9 -- true; err 'for --try and --wait'
ctl 75 acquire /ls/local/held --try -q -- true; [ -s err ] && bad "  and says nothing" || ok "  and says nothing"
ctl 124 -o json acquire /ls/local/held --wait 2s --quiet -- true; [ -s err ] && bad "  and says nothing" || ok "  and says nothing"
ctl 0 acquire /ls/local/quick --try --at-least 3s --quiet -- true; [ -s err ] && bad "  and says nothing" || ok "  and says nothing"
ctl 2 -v acquire /ls/local/quick --quiet -- true; err '--quiet and --verbose'; ctl 127 acquire /ls/local/quick --quiet -- no-such-command; err 'no-such-command'
ctl 0 acquire /ls/local/quick --wait 0 -- true
ctl 0 -v acquire /ls/local/quick --at-least 1s --jeopardy-signal USR1 --safe-signal USR2 -- true; err 'rides out'; err 'holds /ls/local/quick \(token [0-9]+\)'
ctl 2 acquire /ls/local/quick --jeopardy-signal NOSUCH -- true
ctl 0 put /ls/local/d/guarded one
ctl 0 put /ls/local/d/guarded two --if-sequencer "$sequencer"
ctl 0 cp /ls/local/d/f /ls/local/d/guarded --if-sequencer "$sequencer"
ctl 0 rm /ls/local/d/guarded --if-sequencer "$sequencer"
ctl 1 put /ls/local/d/guarded new --if-sequencer "$sequencer"; err '--if-absent creates one'; ctl 1 put /ls/local/no/where new --if-absent --if-sequencer "$sequencer"; err 'mkdir -p /ls/local/no'
ctl 0 put /ls/local/d/guarded new --if-absent --if-sequencer "$sequencer"; ctl 3 put /ls/local/d/guarded new --if-absent --if-sequencer "$sequencer"; err 'exists already'
ctl 3 cp /ls/local/d/f /ls/local/d/guarded --if-absent --if-sequencer "$sequencer"; ctl 3 put /ls/local/d/guarded up --ephemeral --if-absent; ctl 0 rm /ls/local/d/guarded
background ephemeral put /ls/local/d/guarded up --ephemeral --if-sequencer "$sequencer"; ephemeral=$pid
holds 10 "put --ephemeral --if-sequencer stays" "$bin/chubbyctl" stat /ls/local/d/guarded
kill "$ephemeral"; wait "$ephemeral"; holds 15 "  and its file goes with it" gone /ls/local/d/guarded
background waiter acquire /ls/local/held -- sh -c 'echo mine'; waiter=$pid
waits() { "$bin/chubbyctl" -o json locks /ls/local/held | jq -e '.waiters | length == 1'; }
holds 10 "a waiter is listed" waits
holds 10 "  and told why, after two seconds" grep -Eq 'waiting for /ls/local/held: held by .*place 1 of 1' waiter.err
ctl 0 locks; out '/ls/local/held'; out 'nightly backup'
ctl 0 -o json locks /ls/local/held
fields out path mode token holders.0.session holders.0.principal holders.0.host holders.0.pid holders.0.since_s holders.0.reason \
	waiters.0.session waiters.0.principal waiters.0.host waiters.0.pid waiters.0.waiting_s waiters.0.estimate_s waiters.0.place waiters.0.mode waiters.0.reason delayed_s revoked
ctl 0 locks --watch --times 2 --every 300ms; out '^PATH'
ctl 0 -o json locks --watch --times 2 --every 300ms /ls/local/held; fields out path mode holders.0.session; [ "$(wc -l <out)" = 1 ] && ok "  once" || bad "  once"
ctl 2 locks --every 1s; ctl 2 locks --watch --every 1ms
ctl 1 explain /ls/local/nosuch; out 'no such node'; err 'NotFound'
ctl 0 explain /ls/local/held; ctl 0 -o json explain /ls/local/held; fields out path
ctl 0 top; out '^cell local: master r'; out '^sessions '; out '^WAITED FOR LONGEST'; out '^/ls/local/held '; out "no change waits for clients' caches"
ctl 0 -o json top; fields out cell master epoch replicas healthy sessions nodes locks backlog.waiters backlog.mail_bytes per_s waits.0.path waits.0.waiters.0.waiting_s holdups
ctl 0 top --times 2 --every 300ms; out '^a second: '
ctl 0 lint /ls/local/held; out '^no client misuses the cell' # this script does: it has a session for each command
ctl 0 -o json lint /ls/local/held --most 5; fields out epoch since_s findings; is .findings '[]'
ctl 0 lint --session "$session" --principal nobody --rule polling,handle-leak; ctl 2 lint --rule nonsense; err 'want some of polling'; ctl 2 lint --session x; ctl 2 lint --most 0
ctl 0 -o json top --most 1; fields out waits.0.path; ctl 2 top --every 1ms; ctl 2 top --most 0; ctl 2 top --times -1

echo "== transactions"
ctl 0 txn --if-absent /ls/local/d/one --put '/ls/local/d/one=a  b' --create /ls/local/d/two=x=1; ctl 0 cat /ls/local/d/one; out '^a  b$'; ctl 0 cat /ls/local/d/two; out '^x=1$'
ctl 3 txn --if-absent /ls/local/d/one --put /ls/local/d/one=never --rm /ls/local/d/two; err '^chubbyctl: --if-absent: .*/ls/local/d/one: .*there is such a node'
ctl 3 txn --put /ls/local/d/one=never --create /ls/local/d/two=x; err '^chubbyctl: --create: .*/ls/local/d/two: .*exists already'
ctl 0 cat /ls/local/d/one; out '^a  b$'
ctl 0 -o json stat /ls/local/d/one; generation=$(jq .content_generation out); instance=$(jq .instance out)
ctl 0 txn --if-generation "/ls/local/d/one=$generation" --if-instance "/ls/local/d/one=$instance" --if-exists /ls/local/d
ctl 3 txn --if-instance "/ls/local/d/one=$((instance + 1))"; err '^chubbyctl: --if-instance: '
ctl 0 -o json txn --if-generation "/ls/local/d/one=$generation" --put /ls/local/d/one=second --rm /ls/local/d/two
fields out path kind content_generation instance size; is .path '"/ls/local/d/one"'; [ "$(sed -n 2p out)" = '{"path":"/ls/local/d/two","deleted":true}' ] && [ "$(wc -l <out)" = 2 ] && ok "  a line for each change" || bad "  a line for each change"
ctl 3 -o json txn --if-generation "/ls/local/d/one=$generation" --put /ls/local/d/one=third; cp err out; is .error.code '"GenerationMismatch"'; is .error.path '"/ls/local/d/one"'; is .error.exit 3; fields out error.current
chubbyctl txn --put /ls/local/d/one=- --create-file /ls/local/d/two=bytes <bytes >out 2>err && ok "txn reads stdin and files" || bad "txn reads stdin and files"
for name in one two; do "$bin/chubbyctl" cat /ls/local/d/$name >got; cmp -s bytes got && ok "  and keeps every byte of $name" || bad "  and keeps every byte of $name"; done
ctl 0 txn --if-sequencer "$sequencer" --put-file /ls/local/d/two=/dev/null; ctl 0 cat /ls/local/d/two; [ -s out ] && bad "  an empty file" || ok "  an empty file"
ctl 1 txn --rm /ls/local/d/one --rm /ls/local/d/nosuch; err '^chubbyctl: --rm: .*nosuch: .*no such node'; ctl 0 stat /ls/local/d/one
ctl 1 txn --put /ls/local/nosuch/one=x; err 'chubbyctl mkdir -p /ls/local/nosuch does'; ctl 1 txn --rm /ls/local/held; err '^chubbyctl: --rm: .*(holds|held)'
ctl 2 txn; err 'neither a condition nor a change'; ctl 2 txn --put /ls/local/d/one; err '^chubbyctl: --put "/ls/local/d/one": want PATH=VALUE'; ctl 2 txn --if-generation /ls/local/d/one=x; err 'whole number'
ctl 2 txn --put /ls/local/d/one=a --rm /ls/local/d/one; err '--put and --rm both change'; ctl 2 txn --if-absent /ls/foo/a --rm /ls/local/d/one; err 'another cell'
mapfile -t steps < <(for i in {1..65}; do printf -- '--if-absent\n/ls/local/d/no%s\n' "$i"; done); ctl 2 txn "${steps[@]}"; err 'at most 64 of each'; ctl 0 txn "${steps[@]:0:128}"
head -c 262144 /dev/zero >large; ctl 1 txn --put-file /ls/local/d/one=large; err 'more than 262144 bytes'; ctl 1 txn --put-file /ls/local/d/one=nosuch; err '--put-file: .*no such file'
ctl 2 txn --put /ls/local/acl/everyone=; err 'not undo it'; ctl 0 txn --put /ls/local/acl/spare=ann --yes; ctl 0 txn --rm /ls/local/acl/spare --rm /ls/local/d/one --rm /ls/local/d/two --yes

ctl 2 txn --put /ls/local/d/one=-; err 'nothing came from standard input'; ctl 2 txn --create-file /ls/local/d/one=-; ctl 1 stat /ls/local/d/one

echo "== what cannot be written, or means nothing"
full 1 help; err 'could not be written to standard output: .*no space left'; full 1 config --help; full 1 queue take --help; full 1 version; full 1 -o json version; full 1 completion bash; full 1 sizing
full 1 ls /ls/local; full 1 -o json ls /ls/local; full 1 -o json cell status; full 1 cell status; full 1 -o json whoami; full 1 -o yaml stat /ls/local; full 1 whoami; full 1 tree /ls/local
full 2 queue; full 2 config; err 'needs one of the commands'; full 1 acquire /ls/local/unread; err 'given up: .*no space left'; full 1 queue put /ls/local/unread.q x; err 'is in the queue, but'
unread 141 ls /ls/local; [ -s err ] && bad "  without a word" || ok "  without a word"; unread 141 help; unread 141 -o json cell status
unread 1 acquire /ls/local/unread; err 'given up: .*broken pipe'; ctl 0 acquire /ls/local/unread --try -- true
unread 1 -o json acquire /ls/local/unread --sequencer-file unread.seq; ctl 0 acquire /ls/local/unread --try -- true; [ -e unread.seq ] && bad "  and the file is gone" || ok "  and the file is gone"
unread 1 elect /ls/local/unread --value me; ctl 0 acquire /ls/local/unread --try -- true
unread 1 semaphore /ls/local/unread.d --slots 1; ctl 0 semaphore /ls/local/unread.d --slots 1 --try -- true
unread 1 members join /ls/local/unread.up; ctl 0 members ls /ls/local/unread.up; err 'no members'
unread 1 -o json put /ls/local/unread.file x --ephemeral; ctl 1 stat /ls/local/unread.file
unread 1 -o json barrier /ls/local/unread.bar --parties 1; err 'all have come'
for group in queue cell 'cell upgrade' lock session acl 'acl file' config members quota drill bench sequencer completion; do
	# shellcheck disable=SC2086
	ctl 2 -o json $group; [ -s out ] && bad "  prints nothing else" || ok "  prints nothing else"; cp err out; is .error.exit 2
	# shellcheck disable=SC2086
	ctl 2 $group; out '^Available Commands'; err 'needs one of the commands above'
done
ctl 2 elect /ls/local/unread --show --lease 5s; err '--show and --lease do not go together'; ctl 2 elect /ls/local/unread --observe --value x; err '--observe and --value'
ctl 2 semaphore /ls/local/unread.d --slots 2 --resize --reason why; err '--resize and --reason'; ctl 2 acquire /ls/local/unread --at-least 2s; err '--at-least is for a command'
full 1 acquire /ls/local/unread --kill-after 2s --at-least 0 --safe-signal '' --retry=false; err 'given up: .*no space left'
ctl 2 acquire /ls/local/unread --try --wait 3s -- true; err '--try and --wait'; ctl 2 locks --times 3; err '--times is for --watch'; ctl 2 cell recover . --from-removed; err '--from-removed is for --to'
ctl 2 put /ls/local/unread x --ephemeral --if-generation 3; err '--ephemeral and --if-generation'; ctl 2 cp -r /ls/local/d /ls/local/e --if-generation 3; err '--recursive and --if-generation'

echo "== sequencers"
ctl 0 sequencer check "$sequencer"; ctl 0 -o json sequencer check "$sequencer"
ctl 0 sequencer show "$sequencer"; out '/ls/local/held'
ctl 0 -o json sequencer show "$sequencer"; fields out path mode token cell_id
ctl 3 sequencer check nonsense; out '^not valid: '; ctl 3 sequencer show nonsense; ctl 3 sequencer check ''; ctl 3 sequencer show ''

echo "== sessions"
ctl 0 session ls; out "$session"
ctl 0 -o json session ls; fields out session principal host pid lease_s left_least_s left_most_s handles locks may_cache
ctl 0 session show "$session"; out 'lease'
ctl 0 -o json session show "$session"; fields out session principal host pid lease_s left_least_s left_most_s handles locks locks_held
ctl 2 session end "$session" --reason drill # without --yes it only says what it would do
ctl 2 session end "$session" --yes

echo "== lock break"
ctl 2 lock break /ls/local/held --reason drill
ctl 0 lock break /ls/local/held --reason drill --yes
ends "$holder" 74 "the holder of a lock that was broken"
[ -e seq ] && bad "  its sequencer file is gone" || ok "  its sequencer file is gone"
ctl 3 sequencer check "$sequencer"
ctl 0 touch /ls/local/d/guarded
ctl 3 put /ls/local/d/guarded late --if-sequencer "$sequencer"; ctl 3 put /ls/local/d/guarded late --ephemeral --if-sequencer "$sequencer"; ctl 3 rm /ls/local/d/guarded --if-sequencer "$sequencer"
ctl 3 put /ls/local/d/late late --if-absent --if-sequencer "$sequencer"; ctl 3 put /ls/local/d/late late --ephemeral --if-absent --if-sequencer "$sequencer"; ctl 3 cp /ls/local/d/f /ls/local/d/late --if-absent --if-sequencer "$sequencer"; ctl 1 cat /ls/local/d/late
ctl 3 txn --if-sequencer "$sequencer" --put /ls/local/d/guarded=late; err '^chubbyctl: --if-sequencer: '
ends "$waiter" 0 "the waiter has it"
grep -q mine waiter.out && ok "  and its CMD ran" || bad "  and its CMD ran"
background victim acquire /ls/local/held --kill-after 1s -- sh -c 'echo up; exec sleep 100'; victim=$pid
holds 10 "CMD runs" grep -q up victim.out
ctl 0 lock break /ls/local/held --reason drill --yes --now
ends "$victim" 74 "CMD whose lock was broken"
background signalled acquire /ls/local/held -- sh -c 'echo up; exec sleep 100'; signalled=$pid
holds 10 "CMD runs" grep -q up signalled.out
kill -INT "$signalled"; ends "$signalled" 130 "CMD that a signal ended"
background shared acquire /ls/local/held --shared -- sh -c 'echo up; exec sleep 100'; shared=$pid
holds 10 "a shared holder" grep -q up shared.out
ctl 0 acquire /ls/local/held --shared --try -- true
ctl 75 acquire /ls/local/held --try -- true
session=$("$bin/chubbyctl" -o json locks /ls/local/held | jq -r '.holders[0].session')
ctl 0 session end "$session" --reason drill --yes
ends "$shared" 74 "CMD whose session was ended"
background first acquire /ls/local/one --detect-deadlock job1 -- sh -c 'echo up; exec sleep 100'; first=$pid
background second acquire /ls/local/two --detect-deadlock job2 -- sh -c 'echo up; exec sleep 100'; second=$pid
holds 10 "two jobs hold a lock each" grep -q up first.out; holds 10 "  and the other" grep -q up second.out
background nested acquire /ls/local/two --detect-deadlock job1 -- sh -c 'echo mine'; nested=$pid
two_waits() { "$bin/chubbyctl" -o json locks /ls/local/two | jq -e '.waiters | length == 1'; }
holds 10 "one waits for the other" two_waits
ctl 0 locks --graph; out 'waits for /ls/local/two, which .* holds, for'
ctl 0 locks --graph=dot /ls/local; out '^digraph waits \{'; out ' -> .*label="/ls/local/two"'
ctl 0 -o json locks --graph; fields out waits.0.session waits.0.owner waits.0.principal waits.0.host waits.0.pid waits.0.path waits.0.waiting_s waits.0.for.session waits.0.for.owner waits.0.queued cycles
ctl 2 locks --graph=picture; err '--graph "picture"; want text or dot'; ctl 2 acquire /ls/local/one --detect-deadlock ''; err 'detect-deadlock'
ctl 75 -o json acquire /ls/local/one --detect-deadlock job2 --wait 20s -- true
tail -n 1 err >out; is .error.code '"Deadlock"'; fields out error.cycle.0.session error.cycle.0.owner error.cycle.0.path error.cycle.0.for error.cycle.1.path
kill "$second"; ends "$second" 143 "the other gives up"; ends "$nested" 0 "  and the first goes on"
kill "$first"; ends "$first" 143 "the first ends"
ctl 0 history /ls/local/held; out '^TOKEN +MODE'; out ' broken by [^:]+: drill'; out ' released '; out ' ended '; out '^None of these held it while another held it exclusively'
ctl 0 -o json history /ls/local/held; fields out path token until_token mode holder.session holder.principal holder.host holder.pid holder.reason from to end lock_delay_s
ctl 1 history /ls/local/no/such; ctl 2 history

echo "== holders that give way"
background polite acquire /ls/local/polite --give-way --reason backfill -- sh -c 'trap "echo asked; exit 5" TERM; echo up; while :; do sleep 0.05; done'; polite=$pid
holds 10 "acquire --give-way: CMD runs" grep -q up polite.out
ctl 0 acquire /ls/local/polite --reason 'an urgent restore' --wait 20s -- true
ends "$polite" 5 "  gets SIGTERM when another waits"; grep -q asked polite.out && grep -q 'another asks for /ls/local/polite (an urgent restore): giving way' polite.err && ok "  and is told for what" || { cp polite.out out; cp polite.err err; bad "  and is told for what"; }
background polite acquire /ls/local/polite --give-way; polite=$pid
holds 10 "acquire --give-way without CMD" test -s polite.out
ctl 75 acquire /ls/local/polite --try --reason passing -- true; ctl 75 acquire /ls/local/polite --try --ask --reason hourly -- true; ends "$polite" 0 "  lets go for one who only tried, and asked"; grep -q '(hourly): giving way' polite.err && ok "  and says so" || bad "  and says so"
ctl 2 acquire /ls/local/polite /ls/local/one --give-way -- true; err 'give-way is for one lock'; ctl 2 acquire /ls/local/polite --give-way --at-least 1s -- true

echo "== elections"
background observer -o json elect --observe /ls/local/primary; observer=$pid
background candidate elect /ls/local/primary --value web1:80 --name web1 -- sh -c 'echo up; exec sleep 100'; candidate=$pid
holds 15 "a primary" grep -q up candidate.out
ctl 0 cat /ls/local/primary; out '^web1:80$'
holds 10 "  is observed" grep -q '"value":"web1:80"' observer.out
tail -n 1 observer.out >out; fields out path vacant token value holder.session
ctl 0 elect --show /ls/local/primary; out '^primary: web1:80 '
ctl 0 -o json elect --show /ls/local/primary; fields out path token sure holder.session; is .value '"web1:80"'
ctl 0 elect --candidates /ls/local/primary; out 'web1'
ctl 9 elect /ls/local/primary --value x --wait 1ms --busy-exit-code 9 -- true; ctl 124 elect /ls/local/primary --value x --wait 1ms --quiet -- true
ctl 0 -o json elect --candidates /ls/local/primary; fields out name rank priority primary session value value_base64
background yielding elect /ls/local/chosen --value a --name a --yield --lease 5s --lock-delay 3s --kill-after 1s --reason drill --sequencer-file elected --at-least 1s --jeopardy-signal USR1 --safe-signal USR2 -- sh -c 'echo up; exec sleep 100'; yielding=$pid
holds 15 "elect with a command" grep -q up yielding.out
background second elect /ls/local/chosen --value b --name b --wait 30s -- sh -c 'echo up; exec sleep 100'; second=$pid
listed() { "$bin/chubbyctl" elect --candidates /ls/local/chosen | grep -q '^b '; }
holds 15 "  and a second candidate" listed
ctl 0 elect --nominate b /ls/local/chosen
ends "$yielding" 143 "  which the first yields to"
holds 15 "  and which is the primary then" grep -q up second.out
background better elect /ls/local/chosen --value c --name c --priority 10 -- sh -c 'echo up'; better=$pid
priority() { "$bin/chubbyctl" -o json elect --candidates /ls/local/chosen | grep -q '"name":"c".*"priority":10'; }
holds 15 "a candidate of a higher priority" priority
kill "$second"; ends "$second" 143 "the primary ends"; ends "$better" 0 "  and the better one comes next"
ctl 1 elect --nominate nobody /ls/local/primary; err 'no candidate'
kill "$candidate"; ends "$candidate" 143 "the primary's CMD"
vacant() { tail -n 1 observer.out | jq -e .vacant; }
holds 10 "  and a vacancy is observed" vacant
ctl 0 cat /ls/local/primary; out '^web1:80$'
ctl 1 elect --show /ls/local/primary; err 'no primary'; ctl 1 -o json elect --show /ls/local/primary; is .vacant true; is .value '""'
kill -INT "$observer"; ends "$observer" 0 "elect --observe until Ctrl-C"
ctl 2 elect /ls/local/primary -- true; err 'value'
background plain -o json elect /ls/local/primary --value x; plain=$pid
holds 15 "elect without CMD prints and holds" test -s plain.out
cp plain.out out; fields out path mode sequencer token session epoch
kill -INT "$plain"; ends "$plain" 0 "  until Ctrl-C"

echo "== several locks, and --retry"
ctl 0 acquire /ls/local/zoe /ls/local/ann -- sh -c '[ "$CHUBBY_LOCK" = "/ls/local/ann
/ls/local/zoe" ] && [ "$(echo "$CHUBBY_SEQUENCER" | wc -l)" = 2 ] && [ "$(echo "$CHUBBY_TOKEN" | wc -l)" = 2 ] && for seq in $CHUBBY_SEQUENCER; do '"$bin/chubbyctl"' sequencer check "$seq" || exit 1; done'
ctl 2 acquire /ls/local/ann /ls/local/zoe; err 'put -- before'; ctl 2 acquire /ls/local/ann /ls/local/ann -- true; ctl 2 acquire /ls/local/ann --retry
both() { background "$1" acquire /ls/local/"$2" /ls/local/"$3" -- sh -c 'echo up >>both.out; sleep 0.2; echo down >>both.out'; }
rm -f both.out; orders=()
for i in 1 2 3; do both "ab$i" ann zoe; orders+=("$pid"); both "ba$i" zoe ann; orders+=("$pid"); done
for one in "${orders[@]}"; do ends "$one" 0 "those who take two locks in either order"; done
[ "$(uniq -c both.out | awk '$1 > 1' | wc -l)" = 0 ] && [ "$(wc -l <both.out)" = 12 ] && ok "  one after the other" || bad "  one after the other"
background zoe acquire /ls/local/zoe --reason 'only one' -- sh -c 'echo up; exec sleep 100'; zoe=$pid
holds 10 "one of two locks is held" grep -q up zoe.out
ctl 75 -o json acquire /ls/local/ann /ls/local/zoe --try -- true; cp err out; is .error.path '"/ls/local/zoe"'; fields out error.holders.0.reason
ctl 124 acquire /ls/local/ann /ls/local/zoe --wait 8s -- true; err 'waiting for /ls/local/zoe: held by'; err 'acquire /ls/local/zoe: --wait 8s ran out'
ctl 0 acquire /ls/local/ann --try -- true
kill "$zoe"; ends "$zoe" 143 "  and released"
background two acquire /ls/local/ann /ls/local/zoe --kill-after 1s -- sh -c 'echo up; exec sleep 100'; two=$pid
holds 10 "CMD under two locks" grep -q up two.out
ctl 0 lock break /ls/local/zoe --reason drill --yes; ends "$two" 74 "  is stopped when one is lost"
ctl 0 acquire /ls/local/ann --try -- true
background again acquire /ls/local/again --retry --lock-delay 1s --kill-after 500ms -- sh -c 'echo "$CHUBBY_SESSION"; [ "$(wc -l <again.out)" = 3 ] && exit 7; exec sleep 100'; again=$pid
ran() { [ "$(wc -l <again.out)" = "$1" ]; }
for i in 1 2; do
	holds 30 "acquire --retry: run $i" ran "$i"
	ctl 0 session end "$(tail -n 1 again.out)" --reason drill --yes
done
ends "$again" 7 "  until CMD ends by itself"
[ "$(sort -u again.out | wc -l)" = 3 ] && ok "  each under a new session" || bad "  each under a new session"
grep -q 'run again under a new session' again.err && ok "  and says so" || bad "  and says so"
background again elect /ls/local/again --value x --retry --lock-delay 1s --kill-after 500ms -- sh -c 'echo "$CHUBBY_SESSION"; exec sleep 100'; again=$pid
holds 10 "elect --retry" ran 1
ctl 0 session end "$(cat again.out)" --reason drill --yes; holds 30 "  is elected again" ran 2
kill -HUP "$again"; ends "$again" 129 "  until CMD ends by a signal"
background hup acquire /ls/local/hup --retry --lock-delay 1s --kill-after 500ms -- sh -c 'trap "echo hup" HUP; echo "$CHUBBY_SESSION"; while :; do sleep 0.1; done'; hup=$pid
holds 10 "acquire --retry, and SIGHUP" test -s hup.out
background next acquire /ls/local/hup -- sh -c 'echo up; exec sleep 100'; next=$pid
holds 10 "  for which another waits" grep -q 'waiting for' next.err
kill -HUP "$hup"; holds 10 "  which is for CMD" grep -q '^hup$' hup.out
ctl 0 session end "$(head -n 1 hup.out)" --reason drill --yes; holds 30 "  another has the lock then" grep -q up next.out
holds 30 "  and CMD waits for it" grep -q 'waiting for /ls/local/hup: held by' hup.err
kill "$hup"; ends "$hup" 143 "  until a signal asks for the end"
kill "$next"; ends "$next" 143 "  which CMD got"

echo "== semaphores"
background one semaphore /ls/local/converters --slots 2 --reason 'film 1' --lease 20s --lock-delay 2s --kill-after 1s --jeopardy-signal USR1 --safe-signal USR2 --at-least 1s --sequencer-file slot.seq --retry -- sh -c 'echo "$CHUBBY_SLOT $CHUBBY_LOCK $CHUBBY_SEQUENCER"; exec sleep 100'; one=$pid
holds 10 "semaphore with a command" test -s one.out
grep -Eq '^[01] /ls/local/converters/slot-00[01] chubby[12]:' one.out && ok "  which knows its slot" || bad "  which knows its slot"
[ "$(cut -d' ' -f3- one.out)" = "$(cat slot.seq)" ] && ok "  and the sequencer file" || bad "  and the sequencer file"
background two -o json semaphore /ls/local/converters --slots 2; two=$pid
holds 10 "semaphore without CMD prints and holds" test -s two.out
cp two.out out; fields out path mode sequencer token session epoch slot
[ "$(jq .slot two.out)" != "$(cut -d' ' -f1 one.out)" ] && ok "  another slot" || bad "  another slot"
ctl 75 semaphore /ls/local/converters --slots 2 --try -- true; err 'film 1'
ctl 75 -o json semaphore /ls/local/converters --slots 2 --try -- true; cp err out; is .error.code '"LockHeld"'; fields out error.holders.0.reason error.holders.1.session
ctl 124 semaphore /ls/local/converters --slots 2 --wait 3s -- true; err 'all 2 slots are taken'
ctl 9 semaphore /ls/local/converters --slots 2 --try --busy-exit-code 9 -- true; ctl 124 semaphore /ls/local/converters --slots 2 --wait 1ms --quiet -- true
ctl 2 semaphore /ls/local/converters --slots 3 --try -- true; err 'the directory says 2'; err '--resize'
ctl 2 semaphore /ls/local/converters -- true; err '--slots is missing'
background third semaphore /ls/local/converters --slots 2 -- sh -c 'echo up; exit 9'; third=$pid
kill -INT "$two"; ends "$two" 0 "  until Ctrl-C"; ends "$third" 9 "  and who waits is next, with CMD's own exit code"
background waits semaphore /ls/local/single --slots 1; waits=$pid
holds 10 "a semaphore of one" test -s waits.out
background waiting semaphore /ls/local/single --slots 1 -- true; waiting=$pid
turn() { "$bin/chubbyctl" -o json locks /ls/local/single/slot-000 | jq -e '.waiters | length == 1'; }
holds 10 "  who waits for it" turn
kill -INT "$waiting"; ends "$waiting" 130 "  until Ctrl-C"; holds 5 "  leaves the queue" sh -c '! "$0" -o json locks /ls/local/single/slot-000 | jq -e ".waiters | length == 1"' "$bin/chubbyctl"
kill -INT "$waits"; ends "$waits" 0 "  until Ctrl-C"
ctl 0 -v semaphore /ls/local/converters --slots 3 --resize; err 'has 3 slots'; ctl 0 -o json semaphore /ls/local/converters --slots 4 --resize; fields out path; is .slots 4
kill "$one"; ends "$one" 143 "CMD that a signal ended"

echo "== barriers"
ctl 124 barrier /ls/local/rollout --parties 3 --wait 1s; err 'fewer than 3 have come'
background left barrier /ls/local/rollout --parties 3; left=$pid
holds 10 "who waits says what for" grep -q 'fewer than 3 have come' left.err
kill -INT "$left"; ends "$left" 130 "barrier until Ctrl-C"
parties=()
for i in 1 2; do background "party$i" -v barrier /ls/local/rollout --parties 3; parties+=("$pid"); done
holds 10 "those who wait say so" grep -q 'fewer than 3 have come' party1.err
kill -0 "${parties[0]}" && kill -0 "${parties[1]}" && ok "  and waits for the third" || bad "  and waits for the third"
ctl 0 -o json barrier /ls/local/rollout --parties 3 --wait 10s; fields out path parties round
for one in "${parties[@]}"; do ends "$one" 0 "  then all go on"; done
grep -q '3 have come, in round' party1.err && ok "  in one round" || bad "  in one round"
ctl 2 barrier /ls/local/rollout --parties 4; err 'the directory says 3'; ctl 2 barrier /ls/local/rollout; err '--parties is missing'
ctl 1 barrier /ls/local/no/where --parties 1; err 'mkdir -p'

echo "== work queues"
ctl 0 queue help; out '^  put '; ctl 0 queue list /ls/local/films; err 'no such queue'; ctl 0 queue list /ls/local/films --dead; err 'has no dead letters'
ctl 0 queue put /ls/local/films 'film 17'; out '^p0\.'; film17=$(cat out)
ctl 0 -o json queue put /ls/local/films 'film 18' --priority 5; fields out path id delay_s; is .priority 5; film18=$(jq -r .id out)
printf 'film 19' | chubbyctl queue put /ls/local/films - --priority -1 --delay 1s >out 2>err && ok "queue put reads standard input" || bad "queue put reads standard input"
ctl 0 queue list /ls/local/films; out '^ID '; out "^$film18 .* free"; ctl 0 -o json queue list /ls/local/films; fields out id path bytes attempts modified_s; is .id "\"$film18\""; is .priority 5; is .state '"free"'
background worker queue take /ls/local/films --attempts 2 --retry-delay 1s --wait 30s --reason 'convert it' --lease 5s --lock-delay 2s --kill-after 1s --jeopardy-signal USR1 --safe-signal USR2 --sequencer-file item.seq -- sh -c 'echo "$CHUBBY_ITEM $CHUBBY_ATTEMPT $CHUBBY_LOCK $CHUBBY_SEQUENCER"; cat; exec sleep 100'; worker=$pid
holds 10 "queue take runs CMD" grep -q 'film 18' worker.out
[ "$(head -n 1 worker.out)" = "$film18 1 /ls/local/films/task-$film18 $(cat item.seq)" ] && ok "  which knows its item, its try and its sequencer" || { cp worker.out out; bad "  which knows its item, its try and its sequencer"; }
ctl 0 queue list /ls/local/films; out "^$film18 .* held"; ctl 0 -o json queue list /ls/local/films; is .state '"held"'; is .holders[0].reason '"convert it"'; is .attempts 1
ctl 1 queue retry /ls/local/films "$film18"; err 'is no dead letter'
kill -9 "$worker"; ends "$worker" 137 "a worker that is killed"
ctl 0 queue take /ls/local/films --attempts 2 --wait 30s --quiet -- sh -c 'test "$(cat)" = "film 17"'
ctl 7 queue take /ls/local/films --attempts 2 --wait 30s --retry-delay 1s -- sh -c 'echo "$(cat) $CHUBBY_ATTEMPT"; exit 7'; out '^film 1[89] [12]$'
ctl 7 queue take /ls/local/films --attempts 2 --wait 30s -- sh -c 'echo "$(cat) $CHUBBY_ATTEMPT"; exit 7'; out '^film 1[89] [12]$'
ctl 7 queue take /ls/local/films --attempts 2 --wait 30s -- sh -c 'echo "$(cat) $CHUBBY_ATTEMPT"; exit 7'; out '^film 1[89] 2$'; err 'is a dead letter'
ctl 124 queue take /ls/local/films --attempts 2 --wait 0s -- true; err 'no item is free'
ctl 0 queue ls /ls/local/films; err 'no items, and . dead letter'; ctl 0 queue list /ls/local/films --dead; out "^$film18 .* 2 .*dead"; ctl 0 -o json queue list /ls/local/films --dead; is .state '"dead"'; is .reason '"exit code 7"'; film19=$(jq -r .id out | tail -n 1)
ctl 0 -v queue retry /ls/local/films "$film18"; err 'is in the queue again'
ctl 0 queue take /ls/local/films --attempts 2 --wait 30s -- sh -c 'test "$(cat) $CHUBBY_ATTEMPT" = "film 18 1"'
ctl 0 -o json queue discard /ls/local/films "$film19"; fields out path; is .id "\"$film19\""; ctl 1 queue discard /ls/local/films "$film19"; err 'no dead letter'
ctl 0 ls /ls/local/films; out turnstile; grep -q - out && bad "  and nothing else is left" || ok "  and nothing else is left"
ctl 0 queue put /ls/local/films ''; ctl 0 -o json queue list /ls/local/films; is .bytes 0
background again queue take /ls/local/films --retry --lease 2s --lock-delay 1s --kill-after 200ms -- sh -c 'echo "$CHUBBY_SESSION $CHUBBY_ATTEMPT"; exec sleep 100'; again=$pid
holds 10 "queue take --retry" test -s again.out
ctl 0 session end "$(cut -d' ' -f1 again.out)" --reason drill --yes; holds 40 "  takes an item again" sh -c '[ "$(wc -l <again.out)" = 2 ]'
grep -q ' 2$' again.out && ok "  and that is the second try" || bad "  and that is the second try"
kill "$again"; ends "$again" 143 "  until CMD ends by a signal"; ctl 0 queue list /ls/local/films; out 'exit code 143'
ctl 2 queue take /ls/local/films; err 'the command is missing'; ctl 2 queue put /ls/local/films x --priority 10; ctl 2 queue put /ls/local/films x --delay 1000h; ctl 127 queue take /ls/local/films -- no-such-program
printf '#!/no/such/interpreter\n' >broken; chmod +x broken; ctl 0 queue put /ls/local/broken film20
for _ in 1 2 3; do ctl 127 queue take /ls/local/broken --attempts 1 --wait 30s -- ./broken; done; err 'cannot run'
ctl 0 -o json queue list /ls/local/broken; is .attempts 0; is .state '"free"'
ctl 1 queue take /ls/local/broken --attempts 1 --wait 30s --sequencer-file item.seq -- sh -c 'exit 1'; err 'is a dead letter'
ctl 1 queue put /ls/local/no/where x; err 'mkdir -p'

echo "== members"
ctl 1 members ls /ls/local/up
background joined -o json members ls /ls/local/up --watch; joined=$pid
background web1 members join /ls/local/up --name web1 --value 10.0.0.1:80 --quiet --lease 5s --kill-after 1s --jeopardy-signal USR1 --safe-signal USR2 --wait-for-name -- sh -c 'echo "$CHUBBY_MEMBER $CHUBBY_SESSION"; exec sleep 100'; web1=$pid
holds 10 "members join with a command" test -s web1.out
grep -Eq '^/ls/local/up/web1 s[0-9]+$' web1.out && ok "  which knows its member" || bad "  which knows its member"
background web2 -o json members join /ls/local/up --name web2; web2=$pid
holds 10 "members join without CMD prints and stays" test -s web2.out
cp web2.out out; fields out session epoch; is .path '"/ls/local/up/web2"'
ctl 0 members ls /ls/local/up; out '^MEMBER'; out '^web1 .*10.0.0.1:80'; out '^web2 '
ctl 0 -o json members ls /ls/local/up; fields out session host pid value_base64; is .name '"web1"'; is .value '"10.0.0.1:80"'
ctl 1 members join /ls/local/up --name web1 -- true; err 'has that name'
ctl 5 members join /ls/local/up -- sh -c 'exit 5'
kill -INT "$web2"; ends "$web2" 0 "  until Ctrl-C"
changes() { [ "$(jq -r '.change + " " + .name' joined.out | grep -E 'web[12]' | tr '\n' ' ')" = "$1" ]; }
holds 10 "  and its coming and going is watched" changes 'joined web1 joined web2 left web2 '
ctl 0 rm /ls/local/up/web1; listed() { "$bin/chubbyctl" members ls /ls/local/up | grep -q '^web1 '; }
holds 10 "a member whose file is deleted is one again" listed
ctl 0 session end "$(cut -d' ' -f2 web1.out)" --reason drill --yes; ends "$web1" 74 "CMD whose membership was lost"
kill -INT "$joined"; ends "$joined" 0 "members ls --watch until Ctrl-C"
background web3 members join /ls/local/up --name web3 --retry --kill-after 500ms -- sh -c 'echo "$CHUBBY_SESSION"; exec sleep 100'; web3=$pid
holds 10 "members join --retry" test -s web3.out
ctl 0 session end "$(cat web3.out)" --reason drill --yes
rejoined() { [ "$(wc -l <web3.out)" = 2 ]; }
holds 40 "  joins again" rejoined
kill "$web3"; ends "$web3" 143 "  until CMD ends by a signal"

echo "== access control"
ctl 0 acl get /ls/local/d; ctl 0 -o json acl get /ls/local/d; fields out acl.read acl.write acl.change
printf 'ann\n' >list; chubbyctl acl file put private - <list >out 2>err && ok "acl file put" || bad "acl file put"
ctl 0 acl file ls; out 'private'
ctl 0 acl file cat private; out 'ann'
ctl 0 acl set /ls/local/d/f --write private --read private
ctl 77 --as bob put /ls/local/d/f no; err 'ann|bob|private|permi'
ctl 77 -o json --as bob cat /ls/local/d/f; cp err out; is .error.code '"PermissionDenied"'
ctl 77 --as bob txn --put /ls/local/d/bob=x --put /ls/local/d/f=no; err '^chubbyctl: --put: .*/ls/local/d/f: '; ctl 77 --as bob txn --if-exists /ls/local/d/f --put /ls/local/d/bob=x; err '^chubbyctl: --if-exists: '; ctl 1 stat /ls/local/d/bob
ctl 0 --as ann cat /ls/local/d/f
names=$("$bin/chubbyctl" --as ann -o json acl get /ls/local/d/f | jq .acl_generation)
ctl 2 --as eve acl set /ls/local/d --change private; err 'does not admit you'
ctl 0 --as ann acl set /ls/local/d/f --change private --if-generation "$names" --yes
ctl 3 --as ann acl set /ls/local/d/f --change private --if-generation "$names"
ctl 0 --as ann acl can write /ls/local/d/f; out '^yes: the list private'
ctl 1 --as bob acl can lock /ls/local/d/f; out '^no: '
ctl 1 -o json --as bob acl can read /ls/local/d/f; fields out path act principal allowed reason; is .allowed false; is .principal '"bob"'
ctl 0 acl can create /ls/local/d/new; ctl 1 acl can delete /ls/local/d/nothing; ctl 2 acl can fly /ls/local/d
ctl 0 whoami; out "^principal +$(id -un)$"; out 'name of your account'
ctl 0 -o json --as ann whoami local; fields out cell principal authentication operator; is .principal '"ann"'; is .authentication '"none"'
ctl 2 acl file put bad 'a b c'
ctl 2 acl file put everyone ''; err 'not undo it'
ctl 0 acl file put spare ann --yes; ctl 0 acl file rm spare --yes
ctl 2 put /ls/local/acl/everyone ''; err 'not undo it'; ctl 2 cp /ls/local/acl/private /ls/local/acl/everyone; err 'not undo it'
ctl 2 rm /ls/local/acl/everyone; err 'not undo it'
ctl 0 put /ls/local/acl/spare ann --yes; ctl 0 cp /ls/local/acl/private /ls/local/acl/spare --yes; ctl 0 rm /ls/local/acl/spare --yes

echo "== quotas"
ctl 0 quota set --principal ann --nodes 1000 --bytes 1MiB --sessions 10 --handles 100 --waiters 10 --yes
ctl 0 -o json quota set --dir /ls/local/d --nodes 100 --bytes 1MiB; fields out principal path quota.nodes quota.bytes quota.sessions quota.handles quota.waiters
ctl 0 quota ls; out 'ann'; ctl 0 -o json quota ls
fields out principal path used.nodes used.bytes used.sessions used.handles used.waiters allowed.nodes allowed.bytes allowed.sessions allowed.handles allowed.waiters

echo "== sizing, without a cell"
ctl 0 sizing; out 'EACH REPLICA NEEDS'; out 'docs/sizing.md'
ctl 0 --servers 127.0.0.1:1 -o json sizing --replicas 3 --sessions 20000 --programs 20000 --handles 2 --cached 10 --nodes 1000 --bytes 1KiB --locks 5 --writes 1 --reads 2 --turns 3 --watchers 4
fields out memory_bytes disk_bytes master_cores follower_cores master_network_bytes follower_network_bytes connections keepalives lease_s parts.0.what parts.0.memory_bytes parts.0.disk_bytes parts.0.master_cores notes measured machine version quiet
ctl 2 sizing --replicas 0; err 'replicas'
ctl 2 sizing --bytes 1MiB; err 'files of'

echo "== the cell"
ctl 0 cell status; out 'master'
ctl 0 cell status --check
ctl 0 cell debug "$work/debug.tar.gz"; out 'parts of what its replicas know'; [ "$(tar -tzf "$work/debug.tar.gz" | grep -c '/goroutines.txt$')" -gt 0 ] && ok "  with goroutines" || bad "  with goroutines"
ctl 1 cell debug "$work/debug.tar.gz"; err 'exists'; ctl 2 cell debug
ctl 0 -o json cell debug "$work/debug.json.tar.gz"; fields out file parts missing
ctl 0 -o json cell status
fields out cell master epoch replicas.0.id replicas.0.role replicas.0.client replicas.0.term replicas.0.applied replicas.0.lag replicas.0.healthy replicas.0.version replicas.0.max_level sessions nodes locks level
ctl 0 cell members; ctl 0 -o json cell members
ctl 1 cell status other; err 'local'
ctl 0 cell upgrade status; out 'There is nothing to do'
ctl 0 -o json cell upgrade status; fields out cell level newest replicas.0.id replicas.0.version replicas.0.max_level next
ctl 0 cell upgrade finish; out 'is at feature level'
ctl 0 cell upgrade finish --without r9
joined=$("$bin/chubbyctl" -o json cell members | jq -r '"\(.id)=\(.client),\(.raft)"' | paste -sd ';')
joins() { # ID PORT: a replica that waits to be added
	"$bin/chubbyd" serve --insecure --insecure-principals --join --cell local --id "$1" --data "joined-$1" \
		--members "$joined;$1=127.0.0.1:74$2,127.0.0.1:75$2" >"$1.out" 2>"$1.err" &
	waits=$!
	if until_true 20 grep -q "waiting to be added to the cell.*chubbyctl cell add $1 127.0.0.1:75$2" "$1.err"; then ok "chubbyd serve --join waits"; else cp "$1.err" err; bad "chubbyd serve --join waits"; fi
}
ctl 69 cell add r6 127.0.0.1:7596 --timeout 8s; err 'join'
joins r6 96; sixth=$waits
ctl 0 cell add r6 127.0.0.1:7596; err 'r6 (catches up|has a vote)'; out 'r6'
ctl 1 cell add r6 127.0.0.1:7596 --no-wait; err 'never used again'
joins r7 97; seventh=$waits
ctl 0 cell replace r6 r7 127.0.0.1:7597 --no-wait
ends "$sixth" 78 "a replica that was replaced ends"
ctl 0 -o json cell remove r7 --no-wait
ends "$seventh" 78 "a replica that was removed ends"
ctl 1 cell remove r7; err 'has no replica r7'
ctl 1 cell remove --cancel r1; err 'not leaving'
ctl 0 cell recover joined-r7; out 'r7 .*removed'; err 'r7 was removed from cell local'
ctl 2 cell recover joined-r7 --to removed.backup; err 'no backup is made of joined-r7'; err 'from-removed'
ctl 0 cell recover joined-r7 --to removed.backup --from-removed; out 'removed.backup: cell local'
ctl 2 cell add r8; ctl 2 cell replace r1 r8
"$bin/chubbyd" serve --insecure --insecure-principals --spare --replace-after 1h --cell local --id r9 --data joined-r9 \
	--members "$joined;r9=127.0.0.1:7498,127.0.0.1:7598" >r9.out 2>r9.err &
spare=$!
if until_true 20 grep -q "chubbyctl cell add r9 127.0.0.1:7598 --spare" r9.err; then ok "chubbyd serve --spare waits"; else cp r9.err err; bad "chubbyd serve --spare waits"; fi
ctl 0 cell add r9 127.0.0.1:7598 --spare; out 'r9 .*spare'
ctl 0 cell remove r9; ends "$spare" 78 "a spare that was removed ends"
ctl 0 -o json cell upgrade finish; fields out level newest
other=$("$bin/chubbyctl" -o json cell status | jq -r '[.replicas[] | select(.role == "replica")][0].id')
ctl 0 cell transfer --to "$other"; out "$other is the master"

echo "== drills"
background lost acquire /ls/local/lost -- sh -c 'echo up; exec sleep 300'; lost=$pid
holds 10 "CMD runs" grep -q up lost.out
ctl 2 drill failover; out 'would hand over'; out 'LOCKS WITHOUT A SEQUENCER'; err 'nothing was done; --yes does it'
ctl 2 drill failover --hard; out 'would fall silent'
ctl 2 -o json drill outage 20s; fields out drill done cell master epoch no_answer_s partial sessions sessions_in_jeopardy sessions_lost locks_held requests_waiting without_sequencer.list given_up.list queues.list
ctl 2 drill outage 46s; err 'want 1s to 45s'; ctl 2 drill outage 20s --limit 20s; err 'want a longer limit'; ctl 2 drill outage soon
ctl 2 drill failover --hard --to r1 --yes; ctl 2 drill slow-client --for 2m; ctl 1 drill session-loss s999999 --yes
ctl 0 mkdir /ls/local/drills
other=$("$bin/chubbyctl" -o json cell status | jq -r '[.replicas[] | select(.role == "replica")][0].id')
ctl 0 --timeout 40s -o json drill failover --yes --to "$other" --limit 20s --reason contract --dir /ls/local/drills
fields out drill done interrupted cell limit_s within_limit no_answer_s calls events master_before master_after epoch_before epoch_after sessions_before sessions_gone.list locks_before locks_kept locks_changed.list
ctl 4 --timeout 40s drill failover --hard --yes --limit 1ms; out 'The master was '; err 'is longer than --limit 1ms'
ctl 0 --timeout 40s drill outage 2s --yes --limit 40s --reason contract --dir /ls/local/drills; out 'no answer for ([2-9]|[1-9][0-9])'
background outage --timeout 40s drill outage 40s --yes --dir /ls/local/drills; outage=$pid
holds 20 "cell status tells of an outage" sh -c '"$1" -o json cell status | jq -e ".acts[0].kind == \"outage\""' sh "$bin/chubbyctl"
kill -INT "$outage"; ends "$outage" 130 "an outage ends with Ctrl-C"
ctl 0 --timeout 40s drill slow-client --yes --for 2s --limit 20s --reason contract --dir /ls/local/drills; out 'silent for'
ctl 0 --timeout 40s -o json drill slow-client --yes --for 1s; fields out slow_client.file slow_client.silent_s slow_client.writes slow_client.longest_wait_s slow_client.at_most_s
session=$("$bin/chubbyctl" -o json locks /ls/local/lost | jq -r '.holders[0].session')
ctl 2 drill session-loss "$session"; out '/ls/local/lost'
ctl 0 --timeout 40s -o json drill session-loss "$session" --yes --limit 40s --reason contract --dir /ls/local/drills
fields out sessions_gone.list.0.session locks_changed.list.0.path locks_changed.list.0.before locks_changed.list.0.holders locks_changed.list.0.after_s locks_changed.list.0.why
ends "$lost" 74 "CMD whose session was ended by a drill"

ctl 69 --servers 127.0.0.1:1 --timeout 1s ls; err 'chubbyctl: '
ctl 69 -o json --servers 127.0.0.1:1 --timeout 1s ls; cp err out; is .error.exit 69
ctl 0 bench locks --duration 1s --clients 2; out '[0-9]'
ctl 0 mkdir /ls/local/bench
ctl 0 bench locks --duration 1s --clients 2 --locks 2 --rate 50 --prefix /ls/local/bench
for load in cached writes; do ctl 0 bench "$load" --duration 1s --clients 2 --size 64 --rate 50 --prefix /ls/local/bench; done
ctl 0 bench sessions --duration 1s --clients 2 --rate 20 --prefix /ls/local/bench
ctl 0 -o json bench reads --duration 1s --clients 2 --size 64 --rate 50 --prefix /ls/local/bench; jq -e . <out >/dev/null && ok "  prints objects" || bad "  prints objects"
for shell in bash zsh fish powershell; do ctl 0 completion "$shell"; out 'chubbyctl'; done
ctl 0 version; ctl 0 -o json version
ctl 0 help acquire; ctl 2 help nosuch
ctl 2 lock /ls/local/job -- true; err "'chubbyctl acquire /ls/local/job -- CMD'"; ctl 2 lock nightly -- true; err "'chubbyctl acquire PATH"; ctl 2 lock brek x; err 'did you mean break'
ctl 2 session rm s1; err "'chubbyctl session end"; ctl 2 queue add x; err "'chubbyctl queue put"; ctl 2 cell top; err "'chubbyctl top"; ctl 2 kv get x; err "'chubbyctl cat"
for word in del delete create replicas unlock leader permit release health backup rename login; do ctl 2 "$word"; err "'chubbyctl "; done
nothing=$SECONDS
ctl 69 --servers 127.0.0.1:1 ls; err 'refused'
[ $((SECONDS - nothing)) -le 10 ] && ok "  at once" || bad "  at once"

echo "== backups"
ctl 0 put /ls/local/saved "what was"
ctl 0 cell backup whole.backup; out 'whole.backup: cell local'; out 'sha256'
ctl 0 put /ls/local/saved "what is"
ctl 2 cell backup whole.backup; err 'nothing is replaced'
ctl 0 cell backup verify whole.backup; out 'nodes'
ctl 0 -o json cell backup verify whole.backup; fields out cell cell_id index nodes bytes checksum
ctl 0 cell backup show whole.backup; out '/ls/local/saved'
ctl 0 -o json cell backup show whole.backup /ls/local/acl; fields out path kind size lock holders
ctl 0 cell backup show whole.backup /ls/local/saved; out 'what was'
ctl 1 cell backup show whole.backup /ls/local/nosuch; err 'not in this backup'
ctl 0 -o json cell backup another.backup local; fields out cell cell_id index nodes bytes checksum
"$bin/chubbyctl" cell backup - >piped.backup 2>err && cmp -s <(tail -c +1 piped.backup | head -c 16) <(printf 'chubby backup 1\n') && ok "cell backup -" || bad "cell backup -"
err 'sha256'
ctl 0 cell backup verify piped.backup
chubbyctl cell backup verify - <piped.backup >out 2>err && ok "cell backup verify -" || bad "cell backup verify -"; out 'nodes'
gzip <piped.backup | chubbyctl cell backup show - >out 2>err && bad "cell backup show - refuses what is compressed" || ok "cell backup show - refuses what is compressed"; err 'compressed'
head -c 300 whole.backup >part.backup; ctl 1 cell backup verify part.backup; err 'no whole backup'
ctl 1 cell backup verify nosuch.backup; err 'no such file'
ctl 2 cell restore whole.backup; err '--yes does it'
ctl 2 cell restore; err 'give up'; ctl 1 cell restore --give-up; err 'no backup is being restored'
ctl 1 cell restore part.backup --yes; err 'no whole backup'; ctl 1 cell restore - --yes; err 'no whole backup'
ctl 0 cat /ls/local/saved; out 'what is'
ctl 0 cell restore whole.backup --yes; out 'is restored from whole.backup'
ctl 0 cell status; out 'Restored on .* from a backup of'
ctl 0 cat /ls/local/saved; out 'what was'
chubbyctl -o json cell restore - local --yes --above 9000000000000 --reason 'tried' <piped.backup >out 2>err && ok "cell restore -" || bad "cell restore -"; fields out cell cell_id counter index nodes bytes checksum sessions_ended
ctl 0 cat /ls/local/saved; out 'what is'
ctl 69 --servers 127.0.0.1:1 cell backup none.backup; err 'refused'
[ -e none.backup ] || ls .none.backup.* >/dev/null 2>&1 && bad "a backup that failed leaves nothing" || ok "a backup that failed leaves nothing"

echo "== backups in a bucket, and by themselves"
mkdir -p bucket/backups kept
export AWS_ACCESS_KEY_ID=contract AWS_SECRET_ACCESS_KEY=tried
"$s3" -a contract -s tried -p 127.0.0.1:9481 posix "$PWD/bucket" >s3.out 2>&1 &
bucket=$!
until_true 20 grep -q 'listening on' s3.out
remote="s3://backups/of/whole.backup?region=us-east-1&endpoint=http://127.0.0.1:9481"
ctl 0 cell backup "$remote"; out 'whole.backup.*: cell local'
ctl 2 cell backup "$remote"; err 'nothing is replaced'
ctl 0 cell backup verify "$remote"; out 'sha256'
ctl 0 cell backup show "$remote" /ls/local/saved; out 'what is'
ctl 0 cell restore "$remote" --yes; out 'is restored'
ctl 1 cell backup verify "${remote/whole/none}"; err 'file does not exist'
ctl 2 cell backup 's3://backups?regoin=x'; err 'names no file in a bucket'
AWS_SECRET_ACCESS_KEY=wrong ctl 1 cell backup "${remote/whole/other}"; err 'refuses these credentials'
"$bin/chubbyd" serve --insecure --bootstrap --cell kept --id r1 --data r1 --members 'r1=127.0.0.1:9463,127.0.0.1:9473' \
	--backup-to "$PWD/kept" --backup-every 1m --backup-keep 2 >serve.out 2>serve.err &
kept=$!
if until_true 30 sh -c 'ls kept | grep -q "^kept-.*Z-........\.backup$"'; then ok "chubbyd serve --backup-to"; else cp serve.err err; bad "chubbyd serve --backup-to"; fi
ctl 0 cell backup verify kept/kept-*.backup; out 'cell kept'
kill -TERM "$kept"; ends "$kept" 0 "SIGTERM ends serve"
"$bin/chubbyd" serve --insecure --cell kept --id r1 --data r1 --members 'r1=127.0.0.1:9463,127.0.0.1:9473' --backup-to kept --backup-every 1s --backup-keep 0 >out 2>err
got=$?
if [ $got = 78 ]; then ok "chubbyd serve refuses such keys -> 78"; else bad "chubbyd serve refuses such keys -> $got, want 78"; fi
err 'backup-to: "kept" is neither'; err 'backup-every: 1s is outside'; err 'backup-keep: "0" is not'
kill -TERM "$bucket"; wait "$bucket" 2>/dev/null; unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY

echo "== names of calls"
ctl 1 -o json cat /ls/local/nosuch; cp err out; fields out error.request
ctl 1 -v cat /ls/local/nosuch; err '^chubbyctl: request=[0-9a-f]{16} in the logs of the replicas$'
echo "== traces"
ctl 0 -v --trace-endpoint http://127.0.0.1:1 ls /ls/local; err 'trace [0-9a-f]{32}' # nobody is there to take it
ctl 1 -o json --trace-endpoint http://127.0.0.1:1 cat /ls/local/nosuch; cp err out; fields out error.trace
ctl 2 --trace-endpoint localhost:4317 ls /ls/local; err 'is no collector'

echo "== certificates"
mkdir safe && cd safe
CHUBBYD_AUDIT_FILE=$PWD/audit.log "$bin/chubbyd" dev --tls --cell safe --replicas 1 --base-port 9421 >dev.out 2>dev.err &
safe=$!
if until_true 30 grep -q '^ready: cell safe' dev.out; then ok "chubbyd dev --tls: $(grep ^ready dev.out)"; else cp dev.out out; cp dev.err err; bad "chubbyd dev --tls is ready"; fi
at=(--servers 127.0.0.1:9421); tls=.chubby/safe/tls
cp .chubby/safe/dev.json out; fields out tls.cacert tls.cert tls.key
ctl 0 "${at[@]}" put /ls/safe/x hello; ctl 0 "${at[@]}" cell status safe
ctl 0 "${at[@]}" put /ls/safe/acl/oncall dev
ctl 0 "${at[@]}" -o json whoami safe; is .principal '"dev"'; is .authentication '"certificate"'; is .operator true
ctl 0 "${at[@]}" --cacert $tls/ca.crt --cert $tls/client-dev.crt --key $tls/client-dev.key acquire /ls/safe/lock -- true
ctl 77 "${at[@]}" --as bob cat /ls/safe/x; err 'certificate says "dev"'
ctl 77 "${at[@]}" --cacert $tls/ca.crt cat /ls/safe/x; err 'neither a certificate nor a token'
ctl 77 "${at[@]}" --cacert $tls/replica-ca.crt cat /ls/safe/x; err 'not who it should be'
ctl 2 "${at[@]}" --cert $tls/client-dev.crt cat /ls/safe/x; err '\-\-key'
"$bin/chubbyd" certs client billing --dir $tls >out 2>err && ok "chubbyd certs client" || bad "chubbyd certs client"
mv .chubby/safe/dev.json .
ctl 77 "${at[@]}" cat /ls/safe/x; err 'not encrypted.*--cacert'
CHUBBY_CACERT=$tls/ca.crt CHUBBY_CERT=$tls/client-billing.crt CHUBBY_KEY=$tls/client-billing.key ctl 0 "${at[@]}" cat /ls/safe/x; out hello
CHUBBY_CACERT=$tls/ca.crt CHUBBY_CERT=$tls/client-billing.crt CHUBBY_KEY=$tls/client-billing.key ctl 2 "${at[@]}" drill failover safe; out 'You are no operator of this cell'
printf 'safe: {servers: ["127.0.0.1:9421"], cacert: ca.crt, cert: client-billing.crt, key: client-billing.key}\n' >$tls/cells.yaml
CHUBBY_CONFIG=$tls/cells.yaml ctl 0 cat /ls/safe/x; out hello
"$bin/chubbyd" certs token system:serviceaccount:shop:cart --dir $tls --for 1h >out 2>err && ok "chubbyd certs token" || bad "chubbyd certs token"
for key in token-keys token-issuer token-audience; do out "  $key: "; done
token=$tls/system:serviceaccount:shop:cart.token
ctl 0 "${at[@]}" --cacert $tls/ca.crt --token-file $token cat /ls/safe/x; out hello
ctl 0 "${at[@]}" --cacert $tls/ca.crt --token-file $token whoami safe; out 'known by +its token'; out 'operator +no'
CHUBBY_CACERT=$tls/ca.crt CHUBBY_TOKEN_FILE=$token ctl 0 "${at[@]}" acquire /ls/safe/lock -- \
    "$bin/chubbyctl" "${at[@]}" session ls safe; out 'system:serviceaccount:shop:cart'
ctl 2 "${at[@]}" --cacert $tls/ca.crt --token-file $token --cert $tls/client-dev.crt --key $tls/client-dev.key cat /ls/safe/x; err 'either'
ctl 2 "${at[@]}" --cacert $tls/ca.crt --token-file nosuch cat /ls/safe/x; err 'no such file'
ctl 2 "${at[@]}" --token-file $token cat /ls/safe/x; err '\-\-cacert'
sed 's/^......../xxxxxxxx/' $token >bad.token
ctl 77 "${at[@]}" --cacert $tls/ca.crt --token-file bad.token cat /ls/safe/x; err 'no JWT'
printf 'safe: {servers: ["127.0.0.1:9421"], cacert: ca.crt, token-file: "system:serviceaccount:shop:cart.token"}\n' >$tls/cells.yaml
CHUBBY_CONFIG=$tls/cells.yaml ctl 0 cat /ls/safe/x; out hello
"$bin/chubbyd" certs revoke $tls/client-billing.crt --dir $tls >out 2>err && ok "chubbyd certs revoke" || bad "chubbyd certs revoke"
out 'ca.crl'
mv dev.json .chubby/safe/
"$bin/chubbyd" certs init --dir own >out 2>err && ok "chubbyd certs init" || bad "chubbyd certs init"
"$bin/chubbyd" certs server r1 --cell main --host h1 --host 10.0.0.1 --dir own >out 2>err && ok "chubbyd certs server" || bad "chubbyd certs server"
for key in tls-cert tls-key tls-ca peer-tls-cert peer-tls-key peer-tls-ca; do out "  $key: own/"; done
"$bin/chubbyd" certs init --dir own >out 2>err && bad "chubbyd certs init replaces nothing" || ok "chubbyd certs init replaces nothing"
"$bin/chubbyd" serve --cell c --id r1 --data empty --members 'r1=127.0.0.1:9521,127.0.0.1:9531' >out 2>err
got=$?
if [ $got = 78 ]; then ok "chubbyd serve needs certificates, or --insecure -> 78"; else bad "chubbyd serve needs certificates, or --insecure -> $got, want 78"; fi
err 'tls-cert is missing'; err 'insecure: true'
cp audit-refused.log out; out '"event":"refusal"'; out '"code":"Unauthenticated"'
cp audit.log out; out '"event":"act","call":"Open","principal":"dev"'; out '"on":"/ls/safe/acl/oncall"'
kill -TERM "$safe"; ends "$safe" 0 "SIGTERM ends dev --tls"
cd ..

echo "== names"
mkdir named && cd named
printf '#!/bin/sh\ncat >>%s/published\n' "$PWD" >hook; chmod +x hook
"$bin/chubbyd" serve --insecure --bootstrap --cell named --id r1 --data r1 --members 'r1=127.0.0.1:9461,127.0.0.1:9471' --dns-hook "$PWD/hook" >serve.out 2>serve.err &
named=$!
if until_true 20 grep -q . published; then ok "chubbyd serve --dns-hook"; else cp serve.err err; bad "chubbyd serve --dns-hook"; fi
cp published out; is .cell '"named"'; is '.replicas[0].client' '"127.0.0.1:9461"'; fields out cell replicas left
kill -TERM "$named"; ends "$named" 0 "SIGTERM ends serve"
"$bin/chubbyd" serve --insecure --cell named --id r1 --data r1 --members 'r1=127.0.0.1:9461,127.0.0.1:9471' --dns-hook hook --dns-server ns1 --dns-ttl 1ms >out 2>err
got=$?
if [ $got = 78 ]; then ok "chubbyd serve refuses such keys -> 78"; else bad "chubbyd serve refuses such keys -> $got, want 78"; fi
err 'dns-hook: "hook" is not an absolute path'; err 'dns-domain is missing'; err 'dns-ttl'
cd ..

echo "== a cell that lost its majority"
mkdir gone && cd gone
at=(--servers 127.0.0.1:9421,127.0.0.1:9422,127.0.0.1:9423)
start_gone() {
	"$bin/chubbyd" dev --cell gone --replicas 3 --base-port 9421 --data "$1" --no-restart >dev.out 2>dev.err &
	gone=$!
	if until_true 30 grep -q '^ready: cell gone' dev.out; then ok "chubbyd dev: $(grep ^ready dev.out)"; else cp dev.out out; cp dev.err err; bad "chubbyd dev is ready"; fi
}
start_gone before
ctl 0 "${at[@]}" put /ls/gone/x early
kill -9 "$(jq '.replicas[0].pid' before/dev.json)"
ctl 0 "${at[@]}" put /ls/gone/x acknowledged
ctl 0 "${at[@]}" acquire /ls/gone/lock -- sh -c 'echo "$CHUBBY_SEQUENCER" >old.seq'
ctl 69 cell recover before/r3/data; err 'has the directory'
kill -9 $(jq '.replicas[1,2].pid' before/dev.json) "$gone"; wait "$gone" 2>/dev/null
ctl 0 cell recover before/r1/data before/r3/data; out 'r3 .*freshest'; err 'a majority: start them'
ctl 0 -o json cell recover before/r1/data; fields out directory cell cell_id replica index term freshest replicas removed
ctl 1 cell recover nosuch; err 'no such file'
ctl 0 cell recover before/r3/data --to gone.backup; out 'gone.backup: cell gone'; err 'r1, r2'; err 'cell restore gone.backup'
ctl 2 cell recover before/r3/data --to gone.backup; err 'nothing is replaced'
ctl 0 -o json cell recover before/r3/data --to again.backup; tail -n 1 out >described; fields described cell cell_id index nodes bytes checksum
ctl 0 cell backup verify gone.backup
start_gone after
ctl 0 "${at[@]}" cell restore gone.backup gone --yes; out 'is restored'
ctl 0 "${at[@]}" cat /ls/gone/x; out 'acknowledged'
ctl 0 "${at[@]}" cell status gone; out 'Restored on .* from what replica r3 had'
ctl 0 "${at[@]}" -o json cell status gone; fields out restored.at restored.counter restored.index restored.taken restored.recovered_from
cat after/*/log >out; out 'was restored from what was left at one replica'
ctl 3 "${at[@]}" sequencer check "$(cat old.seq)"
ctl 0 "${at[@]}" history /ls/gone/lock; out 'remembers no holding'
kill -TERM "$gone"; ends "$gone" 0 "SIGTERM ends dev"
cd ..

echo "== every verb and flag was tried"
while read -r command; do
	was_tried "$command" "" && ok "$command" || bad "$command is tried nowhere in this script"
	for flag in $(options "$command" Flags:); do
		was_tried "$command" "$flag" && ok "$command $flag" || bad "$command $flag is tried nowhere in this script"
	done
done < <(commands ""; commands queue; commands barrier)
for flag in $(options ls "Global Flags:"); do
	short=$(helped ls | grep -oE -- "-[a-z], $flag" | cut -c1-2)
	grep -Eq -- " ($flag${short:+|$short})[ =]" "$typed" && ok "$flag" || bad "$flag is tried nowhere in this script"
done

echo "== the end"
mapfile -t pids < <(jq '.replicas[].pid' .chubby/local/dev.json)
kill -TERM "$dev"; ends "$dev" 0 "SIGTERM ends dev"
dev=
for p in "${pids[@]}"; do kill -0 "$p" 2>/dev/null && bad "replica $p is gone" || ok "replica $p is gone"; done

echo
echo "$checks checks, $failed failed"
[ "$failed" = 0 ]
