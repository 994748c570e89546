package cell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// logLine is a line of a log in JSON.
type logLine map[string]any

func (l logLine) text(field string) string {
	text, _ := l[field].(string)
	return text
}

// events returns the lines of events that have a field with that value, in their order.
func (l *logged) events(t *testing.T, field, value string) (list []logLine) {
	t.Helper()
	for text := range strings.Lines(l.String()) {
		var one logLine
		noErr(t, json.Unmarshal([]byte(text), &one), text)
		if one.text("event") != "" && one.text(field) == value {
			list = append(list, one)
		}
	}
	return list
}

// names are the events of some lines.
func names(lines []logLine) (list []string) {
	for _, one := range lines {
		list = append(list, one.text("event"))
	}
	return list
}

// inLoggedCell runs a test with a cell, and with what its replicas log, at debug and in JSON. Every line with an event has
// the level and the fields that docs/logs.md has for it.
func inLoggedCell(t *testing.T, replicas int, test func(t *testing.T, ctx context.Context, c *celltest.Cell, log *logged), edits ...func(*cell.Config)) {
	t.Helper()
	inBubble(t, 30*time.Minute, func(t *testing.T, ctx context.Context) {
		log := &logged{}
		c := celltest.Start(t, replicas, append([]func(*cell.Config){log.to}, edits...)...)
		t.Cleanup(func() { checkLogTables(t, log) })
		test(t, ctx, c, log)
	})
}

// to has a replica log in JSON, at debug.
func (l *logged) to(cfg *cell.Config) {
	cfg.Logger = slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// has fails if the log does not have an event exactly as often as there are fields, with these fields, in any order.
func (l *logged) has(t *testing.T, event string, want ...logLine) {
	t.Helper()
	lines := l.events(t, "event", event)
	left := slices.Clone(lines)
	for _, fields := range want {
		i := slices.IndexFunc(left, func(one logLine) bool {
			for field, value := range fields {
				if one[field] != value {
					return false
				}
			}
			return true
		})
		if i < 0 {
			t.Errorf("no %s has %v; there are\n%v", event, fields, lines)
			return
		}
		left = slices.Delete(left, i, i+1)
	}
	failIf(t, len(left) > 0, "besides %v there are %d more %s: %v", want, len(left), event, left)
}

func checkLogTables(t *testing.T, log *logged) {
	t.Helper()
	page := must(os.ReadFile("../docs/logs.md"))(t)
	seen := 0
	for text := range strings.Lines(log.String()) {
		var one logLine
		noErr(t, json.Unmarshal([]byte(text), &one), text)
		event := one.text("event")
		if event == "" {
			continue
		}
		seen++
		row := regexp.MustCompile("(?m)^\\| [a-z_`, ]*`" + event + "`[a-z_`, ]* \\| ([a-z, ]+) \\| ([a-z_`, ]*)\\|").FindSubmatch(page)
		if row == nil {
			t.Errorf("docs/logs.md has no event %s", event)
			continue
		}
		if !slices.Contains(strings.Split(string(row[1]), ", "), strings.ToLower(one.text("level"))) {
			t.Errorf("docs/logs.md has %s as %s: %s", event, row[1], text)
		}
		for field := range one {
			if !slices.Contains([]string{"time", "level", "msg", "event", "replica", "epoch"}, field) && !strings.Contains(string(row[2]), "`"+field+"`") {
				t.Errorf("docs/logs.md does not have the field %s of %s: %s", field, event, text)
			}
		}
	}
	failIf(t, seen == 0, "no line has an event")
}

// What becomes of a lock is in the log once, in its order, whatever ends it; each line says whose it was and for how long.
func TestLogOfLocks(t *testing.T) {
	inLoggedCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, log *logged) {
		const path, delay = "/ls/local/lock", 10 * time.Second
		operator := dial(t, ctx, c, "operator", client.Config{As: "root"})
		first := dial(t, ctx, c, "first", client.Config{As: "alice"})
		second := dial(t, ctx, c, "second", client.Config{As: "bob"})
		a, b := open(t, ctx, first, path, delay), open(t, ctx, second, path, delay)
		held := acquire(t, ctx, a)
		go func() {
			time.Sleep(3 * time.Second) // virtual
			_ = held.Release(ctx)
		}()
		next := acquire(t, ctx, b) // waits
		noErr(t, next.Release(ctx))
		tried := must(b.TryAcquire(ctx, api.Exclusive))(t)
		noErr(t, operator.BreakLock(ctx, path, "because", true))
		<-tried.Context().Done()
		held = acquire(t, ctx, a)
		c.Expire(first.Session())
		next = acquire(t, ctx, b) // after the lock-delay
		noErr(t, operator.EndSession(ctx, second.Session(), "enough"))
		<-next.Context().Done()
		time.Sleep(time.Minute) // virtual
		lines := log.events(t, "path", path)
		want := []string{
			"lock_granted", "lock_released", "lock_granted", "lock_released", "lock_granted", "lock_lost", "lock_revoked",
			"lock_granted", "lock_lost", "lock_delayed", "lock_granted", "lock_lost", "lock_delayed",
		}
		if got := names(lines); !slices.Equal(got, want) {
			t.Fatalf("the log says\n%v, want\n%v", got, want)
		}
		for i, fields := range map[int]logLine{
			0:  {"principal": "alice", "session": first.Session().String(), "mode": "exclusive", "waited": 0.0},
			1:  {"principal": "alice", "reason": "closed", "token": lines[0]["token"]},
			2:  {"principal": "bob", "session": second.Session().String()},
			5:  {"principal": "bob", "reason": "broken", "lock_delay": 0.0},
			6:  {"reason": "broken by root: because", "holders": 1.0, "token": lines[4]["token"]},
			8:  {"principal": "alice", "reason": "expired", "lock_delay": float64(delay), "token": float64(held.Token())},
			9:  {"lock_delay": float64(delay)},
			11: {"principal": "bob", "reason": "ended", "token": float64(next.Token())},
		} {
			for field, value := range fields {
				failIf(t, lines[i][field] != value, "line %d has %s=%v, want %v: %v", i, field, lines[i][field], value, lines[i])
			}
		}
		if waited, _ := lines[2]["waited"].(float64); time.Duration(waited) < 2*time.Second || time.Duration(waited) > 4*time.Second {
			t.Errorf("a lock that was held for 3 s was waited for: %v", lines[2])
		}
		if held, _ := lines[1]["held"].(float64); time.Duration(held) < 2*time.Second || time.Duration(held) > 4*time.Second {
			t.Errorf("a lock was held for 3 s: %v", lines[1])
		}
		for who, want := range map[string][]string{
			first.Session().String(): {"session_opened", "session_ended"}, second.Session().String(): {"session_opened", "session_ending", "session_ended"},
		} {
			got := slices.DeleteFunc(names(log.events(t, "session", who)), func(event string) bool { return !strings.HasPrefix(event, "session_") })
			failIf(t, !slices.Equal(got, want), "of a session the log says %v, want %v", got, want)
		}
	})
}

// A fail-over is in the logs of the replicas: who was the master, who is, how long that took, and what it cost clients.
func TestLogOfFailOver(t *testing.T) {
	inLoggedCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, log *logged) {
		const path = "/ls/local/lock"
		lost := dial(t, ctx, c, "lost", client.Config{As: "alice"})
		acquire(t, ctx, open(t, ctx, lost, path, time.Second))
		first := c.Master()
		c.Cut("lost")
		c.FailOver()
		next := dial(t, ctx, c, "next", client.Config{As: "bob"})
		acquire(t, ctx, open(t, ctx, next, path, 0))
		c.Transfer()
		time.Sleep(time.Minute) // virtual
		if got := names(log.events(t, "replica", first)); !slices.Contains(got, "master_began") {
			t.Errorf("the first master's log says %v", got)
		}
		var masters, ends []logLine
		for text := range strings.Lines(log.String()) {
			var one logLine
			noErr(t, json.Unmarshal([]byte(text), &one))
			switch one.text("event") {
			case "master_began":
				masters = append(masters, one)
			case "master_ended":
				ends = append(ends, one)
			}
		}
		if len(masters) != 3 || len(ends) == 0 {
			t.Fatalf("%d masters began, want 3, and %d ended:\n%v\n%v", len(masters), len(ends), masters, ends)
		}
		for _, one := range masters {
			took, _ := one["took"].(float64)
			log, _ := one["phase_log"].(float64)
			leases, _ := one["phase_leases"].(float64)
			if took != log+leases || one.text("replica") == "" || one["epoch"] == nil {
				t.Errorf("a take-over has other phases than its whole: %v", one)
			}
		}
		last := ends[len(ends)-1]
		if served, _ := last["served"].(float64); served <= 0 || !strings.Contains(last.text("reason"), "another replica was elected") {
			t.Errorf("a mastership has ended: %v", last)
		}
		lines := log.events(t, "path", path)
		want := []string{"lock_granted", "lock_lost", "lock_delayed", "lock_granted"}
		if got := names(lines); !slices.Equal(got, want) || lines[1].text("reason") != "lost in a fail-over" || lines[1]["held"] != nil {
			t.Errorf("the logs say %v, want %v: %v", got, want, lines)
		}
	})
}

// The lines about what a call has done, or why it was refused, name the call as its error does.
func TestLogOfRequests(t *testing.T) {
	inLoggedCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, log *logged) {
		const path = "/ls/local/lock"
		alice, bob := dial(t, ctx, c, "alice", client.Config{As: "alice"}), dial(t, ctx, c, "bob", client.Config{As: "bob"})
		h := open(t, ctx, alice, path, 0)
		tried := must(h.TryAcquire(ctx, api.Exclusive))(t)
		noErr(t, tried.Release(ctx))
		noErr(t, acquire(t, ctx, h).Release(ctx))
		var refused *api.Error
		open(t, ctx, alice, "/ls/local/acl/alone", 0)
		noErr(t, errOf(alice.Open(ctx, "/ls/local/hers", client.OpenOptions{Write: true, Create: client.File, ACL: api.ACL{Write: "alone"}})))
		if _, err := bob.Open(ctx, "/ls/local/hers", client.OpenOptions{Write: true}); !errors.As(err, &refused) || refused.Code != api.PermissionDenied || refused.Request == "" {
			t.Fatalf("bob opens a file of alice: %v", err)
		}
		for range 50 {
			_, _ = bob.Open(ctx, "/ls/local/hers", client.OpenOptions{Write: true})
		}
		time.Sleep(2 * time.Second) // virtual
		_, _ = bob.Open(ctx, "/ls/local/hers", client.OpenOptions{Write: true})
		synctest.Wait()
		if lines := log.events(t, "event", "call_refused"); len(lines) != 2 || lines[1]["count"] != 51.0 {
			t.Errorf("52 calls were refused in two bursts; the log says %v", lines)
		}
		seen := map[string]bool{}
		for _, one := range log.events(t, "path", path) {
			id := one.text("request")
			failIf(t, len(id) != 16 || seen[id], "%s is of the request %q, as another line: %v", one.text("event"), id, one)
			seen[id] = true
		}
		equal(t, len(seen), 4, "%d requests, want two grants and two releases")
		lines := log.events(t, "request", refused.Request)
		if len(lines) != 1 || lines[0].text("event") != "call_refused" || lines[0].text("principal") != "bob" || lines[0].text("method") != "Open" || lines[0].text("path") != "/ls/local/hers" || lines[0].text("code") != "PermissionDenied" {
			t.Errorf("of the request %v the log says %v", refused.Request, lines)
		}
	})
}

// A call that takes long is logged once it has ended, with what it has waited for; one that waits for a lock is not slow.
func TestLogOfSlowCalls(t *testing.T) {
	inLoggedCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, log *logged) {
		const path = "/ls/local/f"
		alice, bob := dial(t, ctx, c, "alice", client.Config{As: "alice"}), dial(t, ctx, c, "bob", client.Config{As: "bob"})
		cached, own := open(t, ctx, alice, path, 0), open(t, ctx, bob, path, 0)
		held := acquire(t, ctx, open(t, ctx, bob, "/ls/local/lock", 0))
		reads(t, ctx, cached, 1)
		waiting := open(t, ctx, alice, "/ls/local/lock", 0)
		go func() {
			time.Sleep(5 * time.Second) // virtual
			_ = held.Release(ctx)
		}()
		noErr(t, acquire(t, ctx, waiting).Release(ctx))
		reads(t, ctx, cached, 1)
		if slow := log.events(t, "event", "slow_call"); len(slow) != 0 {
			t.Fatalf("nothing was slow: %v", slow)
		}
		c.Cut("alice")
		began := time.Now()
		must(own.SetContents(ctx, []byte("new")))(t)
		took := time.Since(began)
		synctest.Wait()
		lines := log.events(t, "event", "slow_call")
		stopIf(t, len(lines) != 1, "%d calls were slow, want the write, which took %v: %v", len(lines), took, lines)
		phases, _ := lines[0]["phases"].(map[string]any)
		caches, _ := phases["caches"].(float64)
		all, _ := lines[0]["took"].(float64)
		if time.Duration(caches) < time.Second || time.Duration(all) > took || lines[0].text("method") != "SetContents" || lines[0].text("path") != path || lines[0].text("principal") != "bob" {
			t.Errorf("a write that took %v is logged as %v", took, lines[0])
		}
	})
}

// A master that is cut off logs whom it does not reach, and why, and why it is the master no longer; nobody is named who answers, and nobody once it is back.
func TestLogOfAMasterThatIsCutOff(t *testing.T) {
	inLoggedCell(t, 3, func(t *testing.T, _ context.Context, c *celltest.Cell, log *logged) {
		time.Sleep(10 * time.Second) // virtual
		alone := c.Master()
		c.Isolate(alone)
		time.Sleep(time.Minute)
		c.Rejoin(alone)
		time.Sleep(90 * time.Second) // who is away is named once a minute
		away := log.events(t, "event", "peers_away")
		for _, one := range away {
			failIf(t, one.text("error") == "", "without a cause: %v", one)
			if named := fmt.Sprint(one["peers"]); one.text("replica") != alone && named != "["+alone+"]" {
				t.Errorf("%s names %s, and %s alone was away", one.text("replica"), named, alone)
			}
		}
		failIf(t, len(away) < 2 || len(away) > 6, "in a minute, %d lines: %v", len(away), away)
		for _, one := range log.events(t, "replica", alone) {
			if one.text("event") == "master_ended" && !strings.Contains(one.text("reason"), "too few replicas answer; those that do not: r") {
				t.Errorf("it ended because %q", one.text("reason"))
			}
		}
	})
}
