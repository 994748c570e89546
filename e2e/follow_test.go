package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
)

// sessionOf returns the session of a process; "" if it has none.
func (w *world) sessionOf(p *process) string {
	w.t.Helper()
	for line := range strings.Lines(w.must("-o", "json", "session", "ls")) {
		var s struct {
			Session string
			PID     int
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			w.t.Fatalf("%v: %s", err, line)
		}
		if s.PID == p.cmd.Process.Pid {
			return s.Session
		}
	}
	return ""
}

// await waits until something holds.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	stopIf(w.t, !comesTrue(2*time.Minute, 20*time.Millisecond, holds), "it never came that %s", what)
}

// sleepThrough stops processes until the cell has ended their sessions, as a machine that is suspended does, and has something happen
// meanwhile.
func (w *world) sleepThrough(meanwhile func(), all ...*process) {
	w.t.Helper()
	for _, p := range all {
		processes.Halt(w.t, p.cmd.Process.Pid)
	}
	meanwhile()
	for _, p := range all {
		w.await("the session of "+p.cmd.String()+" ended", func() bool { return w.sessionOf(p) == "" })
	}
	for _, p := range all {
		noErr(w.t, p.cmd.Process.Signal(syscall.SIGCONT))
	}
	for _, p := range all {
		w.await(p.cmd.String()+" had another session", func() bool { return !p.running() || w.sessionOf(p) != "" })
	}
}

// A machine that was suspended for longer than a lease goes on to watch, and to observe: CMD runs once if something has changed meanwhile,
// and not if nothing has.
func TestFollowersOutliveASuspend(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	file, up, primary, ran := w.path("file"), w.path("up"), w.path("primary"), filepath.Join(t.TempDir(), "ran")
	runs := func() string {
		text, err := os.ReadFile(ran)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", " ")
	}
	w.must("put", file, "v0")
	watch := w.ctl("watch", file, "--exec", fmt.Sprintf(`echo "$CHUBBY_EVENT" >>'%s'`, ran))
	members := w.ctl("members", "ls", up, "--watch")
	observer := w.ctl("-o", "json", "elect", "--observe", primary)
	watch.waitFor("watching", 30*time.Second)
	observer.waitPrimary("no file yet", 30*time.Second, func(r primaryLine) bool { return r.Vacant })
	w.await("members ls --watch had a session", func() bool { return w.sessionOf(members) != "" })

	w.sleepThrough(func() {
		w.must("put", file, "v1")
		w.ctl("elect", primary, "--value", "one").waitFor(":", 30*time.Second)
		w.ctl("members", "join", up, "--name", "one").waitFor("one", 30*time.Second)
	}, watch, members, observer)
	told := "events-lost"
	w.await("CMD ran for what had changed", func() bool { return runs() != "" })
	if runs() == "contents-modified" { // it had been sent to the process when that was stopped
		told = "contents-modified"
	}
	observer.waitPrimary("the primary of meanwhile", 30*time.Second, func(r primaryLine) bool { return r.Value == "one" })
	members.waitFor("joined   one", 30*time.Second)

	w.sleepThrough(func() {}, watch)
	w.await("a second line told of the loss", func() bool { return strings.Count(watch.stdout.String(), "events-lost") == 2 })
	w.must("put", file, "v2")
	w.await("CMD ran for another change", func() bool { return strings.HasSuffix(runs(), " contents-modified") })
	equal(t, runs(), told+" contents-modified", "CMD ran for %s")
	for _, p := range []*process{watch, members, observer} {
		noErr(t, p.cmd.Process.Signal(syscall.SIGINT))
		p.exits(t, 30*time.Second, 0, p.cmd)
	}
}

// Twenty changes while CMD needs a second for one are few runs, none with contents that CMD had before; the last contents are among them.
func TestSlowHookIsNotRunForEachChange(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	file, gens := w.path("file"), filepath.Join(t.TempDir(), "gens")
	w.must("put", file, "v0")
	watch := w.ctl("watch", file, "--contents", "--exec", fmt.Sprintf(`sed 's/.*"content_generation":\([0-9]*\).*"contents":"\([^"]*\)".*/\1 \2/' >>'%s'; sleep 1`, gens))
	watch.waitFor("watching", 30*time.Second)
	for i := range 20 {
		w.must("put", file, fmt.Sprintf("v%d", i+1))
	}
	var lines []string
	w.await("CMD had the last contents", func() bool {
		text, err := os.ReadFile(gens)
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return err == nil && strings.HasSuffix(lines[len(lines)-1], " v20")
	})
	seen := map[string]bool{}
	for _, line := range lines {
		failIf(t, seen[line], "CMD had %q again: %q", line, lines)
		seen[line] = true
	}
	noErr(t, watch.cmd.Process.Signal(syscall.SIGINT))
	watch.exits(t, 30*time.Second, 0, "after Ctrl-C")
}

// The hook of the help keeps a file, and does not destroy it when the watched one is deleted, or is not text any more.
func TestHookOfTheHelpKeepsItsFile(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	file, config := w.path("file"), filepath.Join(t.TempDir(), "config")
	w.must("put", file, "listen: 80")
	hook := fmt.Sprintf(`sed 's/.*"contents":"\([^"]*\)".*/\1/' >'%s'`, config)
	watch := w.ctl("watch", file, "--contents", "--initial", "--exec", hook)
	holds := func(text string) func() bool {
		return func() bool {
			got, err := os.ReadFile(config)
			return err == nil && strings.TrimSpace(string(got)) == text
		}
	}
	w.await("the hook ran at the beginning", holds("listen: 80"))
	w.must("put", file, "listen: 81")
	w.await("the hook ran for a change", holds("listen: 81"))
	bytes := spawn(t, strings.NewReader("\xff\xfe"), bin("chubbyctl"), "--servers", w.servers(), "put", file, "-")
	if code := bytes.wait(30 * time.Second); code != 0 {
		t.Fatalf("put: exit %d, %s", code, &bytes.stderr)
	}
	watch.waitFor("is not UTF-8", 30*time.Second)
	w.must("rm", file)
	if code := watch.wait(30 * time.Second); code != 1 || !strings.Contains(watch.stderr.String(), "there is nothing to watch any more") {
		t.Errorf("exit %d, %s", code, &watch.stderr)
	}
	failIf(t, !holds("listen: 81")(), "the hook ran without contents")
}

// A standby that waits for its turn with --retry waits on in another session.
func TestStandbyRetries(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	lock, items, barred := w.path("lock"), w.path("items"), w.path("slots")
	holder := w.ctl("acquire", lock)
	holder.waitFor(":", 30*time.Second)
	slot := w.ctl("semaphore", barred, "--slots", "1")
	slot.waitFor(":", 30*time.Second)
	w.must("mkdir", items)
	var all []*process
	for _, args := range [][]string{
		{"acquire", lock, "--retry"},
		{"acquire", lock, w.path("other"), "--retry"},
		{"elect", lock, "--value", "v", "--retry"},
		{"semaphore", barred, "--slots", "1", "--retry"},
		{"queue", "take", items, "--retry"},
	} {
		all = append(all, w.ctl(append(args, "--", "true")...))
	}
	for _, p := range all {
		w.await(p.cmd.String()+" had a session", func() bool { return w.sessionOf(p) != "" })
		w.must("session", "end", w.sessionOf(p), "--yes", "--reason", "a drill")
		p.waitFor("waited for again", 60*time.Second)
		w.await(p.cmd.String()+" had another session", func() bool { return w.sessionOf(p) != "" })
	}
	for _, p := range []*process{holder, slot} {
		noErr(t, p.end())
	}
	w.must("queue", "put", items, "work")
	for _, p := range all {
		p.exits(t, time.Minute, 0, p.cmd)
	}
}
