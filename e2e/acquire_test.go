package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// acquire gives a shell the token, CMD's own exit code, and exit codes of its own that differ from each other.
func TestAcquire(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	r := w.do("acquire", w.path("a"), "--", "sh", "-c", "echo $CHUBBY_TOKEN; exit 7")
	token, err := strconv.ParseUint(strings.TrimSpace(r.out), 10, 64)
	if r.code != 7 || err != nil || token == 0 {
		t.Fatalf("exit %d, token %q (%v), stderr %s; want exit 7 and a positive integer", r.code, r.out, err, r.err)
	}

	holder := w.ctl("acquire", w.path("a"), "--reason", "nightly backup", "--", "sh", "-c", "echo held; sleep 600")
	holder.waitFor("held", 20*time.Second)
	if r = w.do("acquire", w.path("a"), "--try", "--", "true"); r.code != 75 || !strings.Contains(r.err, "nightly backup") {
		t.Errorf("--try: exit %d, stderr %s; want 75 and who holds it, and why", r.code, r.err)
	}
	began := time.Now()
	if r = w.do("acquire", w.path("a"), "--wait", "1s", "--", "true"); r.code != 124 || time.Since(began) > patience(5*time.Second) {
		t.Errorf("--wait 1s: exit %d after %v, stderr %s; want 124", r.code, time.Since(began), r.err)
	}
	w.do("acquire", w.path("b"), "--", "no-such-command-anywhere").exits(t, 127, "a CMD that does not exist")
	if r = w.do("-o", "json", "locks", w.path("b")); r.code != 0 || strings.TrimSpace(r.out) != "" {
		t.Errorf("a CMD that does not exist took the lock: %s", r.out)
	}
	w.do("acquire", w.path("c"), "--", "/dev/null").exits(t, 126, "a CMD that cannot be run")

	// Signals reach CMD, and its end by one is 128 and the signal's number.
	noErr(t, holder.cmd.Process.Signal(syscall.SIGINT))
	equal(t, holder.wait(20*time.Second), 130, "after SIGINT: exit %d")
	w.do("acquire", w.path("a"), "--try", "--", "true").exits(t, 0, "the lock was not released")
}

// A job that several clocks start at about the same time runs once, although it
// takes only a moment: the lock is kept for a while.
func TestAtLeast(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	began := time.Now()
	first := w.ctl("acquire", w.path("a"), "--try", "--at-least", "3s", "--", "sh", "-c", "echo ran; exit 6")
	first.waitFor("ran", 20*time.Second)
	w.do("acquire", w.path("a"), "--try", "--", "true").exits(t, 75, "another, a moment later")
	if code := first.wait(20 * time.Second); code != 6 || time.Since(began) < 3*time.Second {
		t.Errorf("exit %d after %v, want CMD's own 6, after 3s", code, time.Since(began))
	}
	w.must("acquire", w.path("a"), "--try", "--", "true")
}

// Without CMD the first line says all that a script needs, and the lock is held until a signal.
func TestAcquireWithoutCommand(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	holder := w.ctl("-o", "json", "acquire", w.path("svc"))
	printed := holder.firstLine(20 * time.Second)
	var line struct {
		Path, Mode, Sequencer, Session string
		Token, Epoch                   uint64
	}
	if err := json.Unmarshal([]byte(printed), &line); err != nil || line.Path != w.path("svc") || line.Mode != "exclusive" ||
		line.Token == 0 || line.Session == "" || line.Epoch == 0 {
		t.Fatalf("%v: %s", err, printed)
	}
	w.do("sequencer", "check", line.Sequencer).exits(t, 0, "sequencer check")
	if out := w.must("sequencer", "show", line.Sequencer); !strings.Contains(out, fmt.Sprint(line.Token)) {
		t.Errorf("sequencer show: %s", out)
	}
	if out := w.must("locks"); !strings.Contains(out, w.path("svc")) || !strings.Contains(out, line.Session) {
		t.Errorf("locks: %s", out)
	}
	noErr(t, holder.cmd.Process.Signal(syscall.SIGTERM))
	holder.exits(t, 20*time.Second, 0, "after SIGTERM")
	w.do("sequencer", "check", line.Sequencer).exits(t, 3, "sequencer check after the release")
}

// A holder that is killed keeps its lock for its lease and its lock-delay; a holder that
// releases hands it over at once.
func TestHolderKilled(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	holder := w.ctl("acquire", w.path("a"), "--lease", "2s", "--lock-delay", "3s", "--kill-after", "1s", "-o", "json")
	var line struct{ Token uint64 }
	noErr(t, json.Unmarshal([]byte(holder.firstLine(20*time.Second)), &line))
	waiter := w.ctl("acquire", w.path("a"), "--", "sh", "-c", "echo token $CHUBBY_TOKEN")
	waitForWaiters(t, w, w.path("a"), 1)
	killed := time.Now()
	w.kill9(holder.cmd.Process.Pid)
	next := waiter.firstLine(20 * time.Second)
	after := time.Since(killed)
	var token uint64
	if _, err := fmt.Sscanf(next, "token %d", &token); err != nil || token <= line.Token {
		t.Errorf("the next token is %q, the one before was %d", next, line.Token)
	}
	if after < 3*time.Second || after > patience(8*time.Second) {
		t.Errorf("the waiter had the lock %v after the holder was killed; want 3 s to 8 s", after)
	}
	t.Logf("lease 2 s, lock-delay 3 s: handed on %v after kill -9", after.Round(time.Millisecond))
}

// firstLine waits, with patience, until the process has printed a whole line to its standard output, and returns it. Lines that tell of a
// wait may come before it on standard error.
func (p *process) firstLine(limit time.Duration) string {
	p.t.Helper()
	noErr(p.t, p.prints("a line", limit, func() bool { return strings.Contains(p.stdout.String(), "\n") }))
	line, _, _ := strings.Cut(p.stdout.String(), "\n")
	return line
}

// waitForWaiters waits until the lock has that many waiters.
func waitForWaiters(t *testing.T, w *world, path string, n int) {
	t.Helper()
	stopIf(t, !comesTrue(10*time.Second, 50*time.Millisecond, func() bool {
		var line struct{ Waiters []struct{ Place int } }
		out := w.must("-o", "json", "locks", path)
		if out != "" {
			if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &line); err != nil {
				t.Fatalf("locks: %v\n%s", err, out)
			}
		}
		return len(line.Waiters) >= n
	}), "nobody came to wait for %s", path)
}

// lastIndex is the index of the last entry in the master's log.
func (w *world) lastIndex() uint64 {
	s := w.status()
	for _, r := range s.Replicas {
		if r.ID == s.Master {
			return r.Last
		}
	}
	w.t.Fatal("the master is not among the replicas")
	return 0
}

// A hundred hand-overs among waiters cost a hundred entries: each Release names the next holder, and the grant is in
// the same entry. The waiters' own requests cost none while they wait. The test counts by how much the last index of
// the log grows while nothing else happens in the cell; it allows two entries for other things.
func TestHandOverEntries(t *testing.T) {
	besideOthers(t)
	w := newWorld(t)
	w.env = steadyMaster() // the election of a master costs entries, too
	w.run()
	const waiters, each = 10, 10
	ctx, cancel := context.WithTimeout(context.Background(), patience(60*time.Second))
	defer cancel()
	first := w.handle(ctx, w.client(client.Config{}), "/ls/local/a")
	held := must(first.Acquire(ctx, api.Exclusive))(t)
	var waiting, handed sync.WaitGroup
	var grants atomic.Int64
	var longest atomic.Int64
	var released atomic.Int64
	for range waiters {
		h := w.handle(ctx, w.client(client.Config{}), "/ls/local/a")
		waiting.Add(1)
		handed.Go(func() {
			var once sync.Once
			for range each {
				l, err := h.Acquire(ctx, api.Exclusive, client.OnQueued(func(client.Queued) { once.Do(waiting.Done) }))
				if err != nil {
					t.Error(err)
					return
				}
				longest.Store(max(longest.Load(), time.Now().UnixNano()-released.Load()))
				grants.Add(1)
				released.Store(time.Now().UnixNano())
				if err := l.Release(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	waiting.Wait()
	before := w.lastIndex()
	released.Store(time.Now().UnixNano())
	noErr(t, held.Release(ctx))
	handed.Wait()
	grown := w.lastIndex() - before
	// Reading the index opens no session, so it costs no entry.
	t.Logf("%d hand-overs grew the log by %d entries; the slowest took %v", grants.Load(), grown, time.Duration(longest.Load()))
	if grants.Load() != waiters*each || grown > waiters*each+2 {
		t.Errorf("%d grants grew the log by %d entries; want at most two more than there were releases", grants.Load(), grown)
	}
}

// handle opens a lock file.
func (w *world) handle(ctx context.Context, c *client.Client, path string) *client.Handle {
	w.t.Helper()
	return must(c.Open(ctx, path, client.OpenOptions{Read: true, Write: true, Create: client.File}))(w.t)
}

// Ten contenders share a lock evenly. A witness, to which they report when they enter and leave,
// sees no overlap, and tokens grow.
func TestContenders(t *testing.T) {
	w := start(t)
	const contenders = 10
	span := time.Duration(*rounds) * 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), span+patience(30*time.Second))
	defer cancel()
	var inside, overlaps, last atomic.Int64
	counts := make([]int, contenders)
	var total atomic.Int64
	var handles []*client.Handle // opened before: who began earlier would have more turns
	for range contenders {
		handles = append(handles, w.handle(ctx, w.client(client.Config{}), "/ls/local/contended"))
	}
	var all sync.WaitGroup
	end := time.Now().Add(span)
	for i, h := range handles {
		all.Go(func() {
			for time.Now().Before(end) || total.Load() < 20*contenders { // a slow disk allows few in that time
				l, err := h.Acquire(ctx, api.Exclusive)
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					overlaps.Add(1)
				}
				if int64(l.Token()) <= last.Swap(int64(l.Token())) {
					overlaps.Add(1)
				}
				counts[i]++
				total.Add(1)
				time.Sleep(time.Millisecond) // so that another holder would be seen
				inside.Add(-1)
				if err := l.Release(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	least, most := counts[0], counts[0]
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	t.Logf("%d acquisitions in %v: %v", total.Load(), span, counts)
	failIf(t, overlaps.Load() > 0, "%d overlaps", overlaps.Load())
	if least == 0 || float64(most-least) > 0.1*float64(most)+1 {
		t.Errorf("counts from %d to %d differ by more than a tenth", least, most)
	}
}

// Bad input is a clear error, and nothing is done.
func TestBadInput(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	c := w.client(client.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	fails(t, errOf(c.Open(ctx, "/ls/local/a//b", client.OpenOptions{Read: true})), api.InvalidPath, "a path outside the grammar")
	fails(t, errOf(c.Open(ctx, "/ls/elsewhere/a", client.OpenOptions{Read: true})), api.WrongCell, "another cell's path")
	h := w.handle(ctx, c, w.path("file"))
	report(t, errOf(h.SetContents(ctx, make([]byte, api.MaxContents))), "256 KiB")
	fails(t, errOf(h.SetContents(ctx, make([]byte, api.MaxContents+1))), api.TooLarge, "256 KiB and a byte")
	if contents, _, err := h.Contents(ctx); err != nil || len(contents) != api.MaxContents {
		t.Errorf("the refused write changed the file: %d bytes, %v", len(contents), err)
	}
	for _, bad := range [][]string{
		{"cat", "a/b"}, {"cat", "/ls/local/../x"}, {"ls", "/ls/other"}, {"acquire", w.path("a"), "--lease", "1h", "--", "true"},
		{"acquire", w.path("a"), "--lock-delay", "2m", "--", "true"}, {"put", w.path("x")},
	} {
		if r := w.do(bad...); r.code == 0 || r.err == "" {
			t.Errorf("chubbyctl %v: exit %d, stderr %q", bad, r.code, r.err)
		}
	}
	if now := w.status(); now.Master == "" || len(now.Replicas) != 5 {
		t.Errorf("afterwards the cell has master %q and %d replicas", now.Master, len(now.Replicas))
	}
	if r := w.do("put", w.path("after"), "x"); r.code != 0 {
		t.Errorf("the cell does not serve any more: %s", r.err)
	}
}

// The line of the README for crontabs, to the letter except for its times and its command, in the crontab of two hosts: the job runs
// once, and cron has nothing to mail, of neither host. It mails what another line writes.
func TestCronHasNothingToMail(t *testing.T) {
	besideOthers(t)
	readme := must(os.ReadFile("../README.md"))(t)
	line := regexp.MustCompile(`(?m)^    \*/5 \* \* \* \* \$HOME/chubby/bin/chubbyctl acquire /ls/local/report (.*) -- logger "the report"$`).FindStringSubmatch(string(readme))
	stopIf(t, line == nil, "the README has no line for crontabs")
	w := sharedWorld(t)
	dir := t.TempDir()
	job := fmt.Sprintf(`%s --servers %s acquire %s %s -- sh -c 'echo ran >>%s/ran'`, bin("chubbyctl"), w.servers(), w.path("report"), line[1], dir)
	runCrontab(t, dir, job, job, "echo for the mail")
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // it may not be there yet
		return string(text)
	}
	stopIf(t, !comesTrue(90*time.Second, 100*time.Millisecond, func() bool { return read("ran") != "" && read("mail") != "" }), "cron has not run the lines")
	w.must("acquire", w.path("report"), "--wait", patience(90*time.Second).String(), "--", "true") // behind --at-least of the one; the other has ended long ago
	if mail := read("mail"); strings.Contains(mail, "chubbyctl") || !strings.Contains(mail, "for the mail") {
		t.Errorf("cron mails\n%s", mail)
	}
	if runs := strings.Count(read("ran"), "ran"); runs > 2 { // in two minutes, perhaps
		t.Errorf("the job ran %d times", runs)
	}
}

// runCrontab has Debian's cron run lines each minute until the test ends, and add what it mails to the file mail in a directory.
// Without cron, or without root, which may give it files of its own, the lines are run once, as cron runs them.
func runCrontab(t *testing.T, dir string, lines ...string) {
	t.Helper()
	program, err := os.ReadFile("/usr/sbin/cron")
	if err != nil || os.Geteuid() != 0 {
		for _, line := range lines {
			launch(t, command("env", "-i", "HOME="+dir, "LOGNAME=root", "SHELL=/bin/sh", "PATH=/usr/bin:/bin", "/bin/sh", "-c", "exec >>mail 2>&1; cd && "+line), func(c *exec.Cmd) error {
				c.Dir = dir
				return c.Start()
			})
		}
		return
	}
	for name, text := range map[string]string{
		"sbin/cron": string(program), "sbin/sendmail": "#!/bin/sh\ncat >>" + dir + "/mail\n",
		"crontab": "", "cron.d/.placeholder": "", "crontabs/root": "* * * * * " + strings.Join(lines, "\n* * * * * ") + "\n",
	} {
		name = filepath.Join(dir, name)
		noErr(t, os.MkdirAll(filepath.Dir(name), 0o755))
		mode := os.FileMode(0o600) // cron takes no crontab that others may read
		if filepath.Base(filepath.Dir(name)) == "sbin" {
			mode = 0o755
		}
		noErr(t, os.WriteFile(name, []byte(text), mode))
	}
	p := launch(t, command("unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", `cd "$0" && mount --bind crontabs /var/spool/cron/crontabs &&
		mount --bind cron.d /etc/cron.d && mount --bind crontab /etc/crontab && mount --bind sbin /usr/sbin && mount -t tmpfs tmpfs /run && exec /usr/sbin/cron -f`, dir), (*exec.Cmd).Start)
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // with all that cron has started; unshare ignores SIGTERM
}
