package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/misuse"
)

// misusers returns programs that misuse the cell, each in one way, by the name of what they do. Each makes a file below the directory
// k.Watch, acts as a principal of its own, and goes on until its context ends. "none" misuses nothing.
func misusers() map[string]func(context.Context, task) error {
	return map[string]func(context.Context, task) error{
		"polling":            pollFile,
		"lock-polling":       pollLock,
		"reopening":          reopenFile,
		"brief-holds":        holdBriefly,
		"unfenced":           neverFence,
		"unused-cache":       neverUseCache,
		"handle-leak":        leakHandles,
		"brief-sessions":     openBriefSessions,
		"short-lease":        takeShortLease,
		"large-writes":       writeLarge,
		"same-contents":      writeSame,
		"abandoned-sessions": openAndForget,
		"none":               diligent,
	}
}

func pollFile(ctx context.Context, k task) error {
	return k.withFile(ctx, client.Config{NoCache: true}, func(c *client.Client, h *client.Handle) error {
		return often(ctx, 5, func() error { _, _, err := h.Contents(ctx); return err })
	})
}

func pollLock(ctx context.Context, k task) error {
	return k.withFile(ctx, client.Config{}, func(c *client.Client, h *client.Handle) error {
		holder, err := k.session(ctx, client.Config{})
		if err != nil {
			return err
		}
		defer holder.Close(context.Background())
		other, err := holder.Open(ctx, h.Path(), client.OpenOptions{Write: true})
		if err == nil {
			_, err = other.Acquire(ctx, api.Exclusive)
		}
		if err != nil {
			return err
		}
		return often(ctx, 5, func() error {
			if _, err := h.TryAcquire(ctx, api.Exclusive); !errors.Is(err, api.LockHeld) {
				return fmt.Errorf("the lock that another holds: %w", err)
			}
			return nil
		})
	})
}

func reopenFile(ctx context.Context, k task) error {
	return k.withFile(ctx, client.Config{NoCache: true}, func(c *client.Client, h *client.Handle) error {
		return often(ctx, 5, func() error {
			again, err := c.Open(ctx, h.Path(), client.OpenOptions{Read: true})
			if err != nil {
				return err
			}
			return again.Close(ctx)
		})
	})
}

func holdBriefly(ctx context.Context, k task) error {
	return k.withFile(ctx, client.Config{}, func(c *client.Client, h *client.Handle) error {
		return often(ctx, 5, func() error {
			l, err := h.Acquire(ctx, api.Exclusive)
			if err != nil {
				return err
			}
			_ = l.Sequencer() // it is no other misuse
			return l.Release(ctx)
		})
	})
}

func neverFence(ctx context.Context, k task) error {
	return k.withFile(ctx, client.Config{}, func(c *client.Client, h *client.Handle) error {
		return often(ctx, 1, func() error {
			l, err := h.Acquire(ctx, api.Exclusive)
			if err != nil {
				return err
			}
			time.Sleep(2 * misuse.BriefHold)
			return l.Release(ctx)
		})
	})
}

func neverUseCache(ctx context.Context, k task) error { // it reads once between two changes
	return k.withFile(ctx, client.Config{}, func(c *client.Client, h *client.Handle) error {
		writer, err := k.session(ctx, client.Config{As: "writer of " + k.Misuse})
		if err != nil {
			return err
		}
		defer writer.Close(context.Background())
		other, err := writer.Open(ctx, h.Path(), client.OpenOptions{Write: true})
		if err != nil {
			return err
		}
		n := 0
		return often(ctx, 5, func() error {
			if _, _, err := h.Contents(ctx); err != nil {
				return err
			}
			n++
			_, err := other.SetContents(ctx, []byte(fmt.Sprint(n)))
			return err
		})
	})
}

func leakHandles(ctx context.Context, k task) error { // of some files in turn, so that it is no other misuse
	return k.withFile(ctx, client.Config{NoCache: true}, func(c *client.Client, h *client.Handle) error {
		n := 0
		return often(ctx, 20, func() error {
			n++
			_, err := c.Open(ctx, fmt.Sprintf("%s-%d", h.Path(), n%8), client.OpenOptions{Read: true, Create: client.File})
			return err
		})
	})
}

func openBriefSessions(ctx context.Context, k task) error {
	return often(ctx, 5, func() error {
		c, err := k.session(ctx, client.Config{})
		if err != nil {
			return err
		}
		return c.Close(ctx)
	})
}

func takeShortLease(ctx context.Context, k task) error {
	return k.withFile(ctx, client.Config{Lease: 2 * time.Second}, func(c *client.Client, h *client.Handle) error {
		<-ctx.Done()
		return nil
	})
}

func writeLarge(ctx context.Context, k task) error {
	return k.withFile(ctx, client.Config{}, func(c *client.Client, h *client.Handle) error {
		n := byte(0)
		return often(ctx, 2, func() error {
			n++
			_, err := h.SetContents(ctx, bytes.Repeat([]byte{n}, misuse.LargeWrite))
			return err
		})
	})
}

func writeSame(ctx context.Context, k task) error {
	return k.withFile(ctx, client.Config{}, func(c *client.Client, h *client.Handle) error {
		return often(ctx, 2, func() error { _, err := h.SetContents(ctx, []byte("alive")); return err })
	})
}

// openAndForget opens sessions, which end when it is killed.
func openAndForget(ctx context.Context, k task) error {
	for range misuse.Abandoned.Limits().Count + 5 {
		if _, err := k.session(ctx, client.Config{Lease: time.Second}); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(note{What: "all open"}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// diligent is busy in a proper manner: it does often what others do wrongly.
func diligent(ctx context.Context, k task) error {
	return k.withFile(ctx, client.Config{}, func(c *client.Client, h *client.Handle) error {
		primary, err := h.Acquire(ctx, api.Exclusive) // for long
		if err != nil {
			return err
		}
		follower, err := k.session(ctx, client.Config{})
		if err != nil {
			return err
		}
		defer follower.Close(context.Background())
		watched, err := follower.Open(ctx, h.Path(), client.OpenOptions{Read: true, Write: true, Events: []api.EventKind{api.EventContentsModified}})
		if err != nil {
			return err
		}
		go func() { // it waits in the queue, as long as it takes
			if l, err := watched.Acquire(ctx, api.Exclusive); err == nil {
				_ = l.Release(context.Background())
			}
		}()
		go func() { // it reads what has changed when it has changed, and uses that often
			for {
				if _, err := watched.Next(ctx); err != nil {
					return
				}
				_, _, _ = watched.Contents(ctx)
			}
		}()
		n := 0
		return often(ctx, 20, func() error {
			n++
			if n%20 == 0 { // what changes, and while it is the primary only
				if _, err := h.SetContents(ctx, []byte(fmt.Sprint(n)), client.IfSequencer(primary.Sequencer())); err != nil {
					return err
				}
			}
			again, err := follower.Open(ctx, h.Path(), client.OpenOptions{Read: true})
			if err != nil {
				return err
			}
			if _, _, err := again.Contents(ctx); err != nil {
				return err
			}
			if _, err := again.Stat(ctx); err != nil {
				return err
			}
			return again.Close(ctx)
		})
	})
}

// misuseCell is a task: it does what its name says until it is over.
func misuseCell(k task, over <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-over
		cancel()
	}()
	if err := json.NewEncoder(os.Stdout).Encode(note{What: "ready"}); err != nil {
		return err
	}
	err := misusers()[k.Misuse](ctx, k)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// session opens a session of the task's principal.
func (k task) session(ctx context.Context, cfg client.Config) (*client.Client, error) {
	cfg.Servers = k.Servers
	if cfg.As == "" {
		cfg.As = k.Misuse
	}
	return client.New(ctx, cfg)
}

// withFile calls f with a session, and a handle on a file of the task's own.
func (k task) withFile(ctx context.Context, cfg client.Config, f func(*client.Client, *client.Handle) error) error {
	c, err := k.session(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	h, err := c.Open(ctx, k.Watch+"/"+k.Misuse, client.OpenOptions{Read: true, Write: true, Create: client.File})
	if err != nil {
		return err
	}
	return f(c, h)
}

// often does something that many times a second, until ctx ends.
func often(ctx context.Context, aSecond int, what func() error) error {
	tick := time.NewTicker(time.Second / time.Duration(aSecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := what(); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// lintFinding is what the test reads of a finding.
type lintFinding struct {
	Rule, Session, Principal, Path string
	PID, Count                     int
}

// lint runs chubbyctl lint, which has found something if it exits with 3.
func (w *world) lint(args ...string) (found []lintFinding) {
	w.t.Helper()
	r := w.do(append([]string{"lint", "-o", "json", "--most", "100"}, args...)...)
	var report struct {
		Findings []lintFinding
		More     int
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || report.More > 0 {
		w.t.Fatalf("lint printed %q, %q: %v", r.out, r.err, err)
	}
	if want := map[bool]int{true: 3, false: 0}[len(report.Findings) > 0]; r.code != want {
		w.t.Errorf("lint has found %d things, and exits with %d", len(report.Findings), r.code)
	}
	return report.Findings
}

// Each misuse is produced by a process of its own, and lint names that process, and the rule that it breaks, and no other rule. A
// process that is busy in a proper manner is not named.
func TestEveryMisuseIsNamed(t *testing.T) {
	besideOthers(t)
	w := start(t)
	dir := w.path("misuse")
	w.must("mkdir", dir)
	if found := w.lint(); len(found) > 0 {
		t.Fatalf("in a new cell lint has found %+v", found)
	}
	began := time.Now()
	processes := map[string]child{}
	for name := range misusers() {
		processes[name] = w.child(t, task{Do: "misuse", Misuse: name, Watch: dir})
		defer func() { _ = processes[name].cmd.Process.Kill() }()
	}
	forget := func(c child) time.Time {
		c.waitFor("all open", readyLimit)
		return must(time.Now(), c.cmd.Process.Kill())(t)
	}
	forgotten := forget(processes[misuse.Abandoned.String()])
	named := func(f lintFinding) bool { // by the process, or the principal
		c, ok := processes[f.Rule]
		if f.Session == "" {
			return ok && f.Principal == f.Rule
		}
		return ok && f.PID == c.cmd.Process.Pid && f.Principal == f.Rule
	}
	var found []lintFinding
	for limit := began.Add(3 * time.Minute); ; time.Sleep(time.Second) {
		found = w.lint()
		var missing []string
		for _, m := range misuse.Kinds() {
			if !slices.ContainsFunc(found, func(f lintFinding) bool { return f.Rule == m.String() && named(f) }) {
				missing = append(missing, m.String())
			}
		}
		if slices.Contains(missing, misuse.Abandoned.String()) && time.Since(forgotten) > time.Minute {
			// A master that has taken over meanwhile counts only sessions that began under it.
			forgotten = forget(w.child(t, task{Do: "misuse", Misuse: misuse.Abandoned.String(), Watch: dir}))
		}
		if len(missing) == 0 {
			t.Logf("all are named after %v", time.Since(began))
			break
		}
		stopIf(t, time.Now().After(limit), "lint does not name %q; it has found\n%+v\nin a cell of which was said\n%s", missing, found, w.do("cell", "status", "-o", "json").out)
	}
	for _, f := range found {
		failIf(t, !named(f), "lint names a process, or a rule, that is not to be named: %+v", f)
		failIf(t, f.Path != "" && !strings.HasPrefix(f.Path, dir+"/"+f.Rule), "it is about another path: %+v", f)
	}
	for name, c := range processes {
		failIf(t, name != misuse.Abandoned.String() && !c.running(), "%s has ended: %s", name, &c.stderr)
	}
	w.checkLintFlags(t, dir, found)
}

// checkLintFlags tries what narrows a report down, and that it says what to do.
func (w *world) checkLintFlags(t *testing.T, dir string, all []lintFinding) {
	t.Helper()
	polls := func(f lintFinding) bool { return f.Rule == misuse.Polling.String() }
	poller := all[slices.IndexFunc(all, polls)]
	for _, args := range [][]string{
		{"--rule", "polling"}, {"--session", poller.Session}, {"--principal", "polling"}, {dir + "/polling"},
	} {
		if found := w.lint(args...); len(found) != 1 || !polls(found[0]) {
			t.Errorf("lint %s has found %+v", strings.Join(args, " "), found)
		}
	}
	if found := w.lint("--principal", "none"); len(found) > 0 {
		t.Errorf("who misuses nothing is named: %+v", found)
	}
	if found := w.lint(dir); len(found) == 0 || slices.ContainsFunc(found, func(f lintFinding) bool { return f.Path == "" }) {
		t.Errorf("below %s lint has found %+v", dir, found)
	}
	text := w.do("lint", "--rule", "polling")
	for _, want := range []string{"polling", poller.Session, fmt.Sprintf("pid %d", poller.PID), dir + "/polling", "docs/misuse.md#polling", misuse.Polling.Instead()} {
		failIf(t, !strings.Contains(text.out, want), "lint does not say %q:\n%s", want, text.out)
	}
}
