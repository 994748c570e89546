package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/supervise"
)

// Every code has an exit code, wrapped or not; a new code has to be added here.
func TestExitCodeOfEveryCode(t *testing.T) {
	want := map[api.Code]int{
		api.NotMaster: 69, api.WrongCell: 1, api.Unavailable: 69, api.Uncertain: 76, api.SessionExpired: 1,
		api.StaleEpoch: 69, api.NotFound: 1, api.Exists: 1, api.NotEmpty: 1, api.NotDirectory: 1, api.IsDirectory: 1,
		api.InvalidPath: 2, api.InvalidArgument: 2, api.TooLarge: 1, api.PermissionDenied: 77, api.Unauthenticated: 77,
		api.BadHandle: 1, api.HandleClosed: 1, api.LockHeld: 1, api.LockDelayed: 1, api.LockLost: 1, api.NotHeld: 1,
		api.BadSequencer: 1, api.GenerationMismatch: 3, api.Deadlock: 75, api.QuotaExceeded: 1, api.Cancelled: 1,
		api.DeadlineExceeded: 69, api.Corrupt: 1,
	}
	for _, code := range api.Codes() {
		expected, ok := want[code]
		if !ok {
			t.Errorf("nobody has decided on the exit code of %v", code)
			continue
		}
		for _, err := range []error{code, api.Errorf(code, "x"), fmt.Errorf("open: %w", &api.Error{Code: code})} {
			if got := exitCode(err); got != expected {
				t.Errorf("exit code of %v (%v): %d, want %d", code, err, got, expected)
			}
		}
	}
}

func TestExitCodeOfOtherEnds(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("any other failure"), 1},
		{usagef("what?"), 2},
		{context.DeadlineExceeded, 69},
		{afterSteps(false, context.DeadlineExceeded), 69},
		{fmt.Errorf("x: %w", afterSteps(true, context.DeadlineExceeded)), 76},
		{afterSteps(true, &api.Error{Code: api.InvalidArgument, Err: client.OlderMaster}), 76},
		{errors.Join(afterSteps(true, api.Unavailable), afterSteps(true, api.Unavailable)), 76},
		{afterSteps(true, api.PermissionDenied), 77},
		{afterSteps(true, interrupted{syscall.SIGINT}), 130},
		{&api.Error{Code: api.InvalidArgument, Err: client.OlderMaster}, 69},
		{&exitError{code: 33}, 33},
		{fmt.Errorf("x: %w", &exitError{exitLost, api.Errorf(api.LockLost, "x")}), 74},
		{&supervise.NotRunError{Name: "x", Code: 127}, 127},
		{interrupted{syscall.SIGINT}, 130},
		{interrupted{syscall.SIGTERM}, 143},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exit code of %v: %d, want %d", c.err, got, c.want)
		}
	}
}

// A signal explains what failed because of it, but not the end of a command that got the signal.
func TestInterruptIsTheCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted{syscall.SIGTERM})
	for err, want := range map[error]int{
		api.Cancelled: 143, errors.New("x"): 143, nil: 0, &exitError{code: 5}: 5,
	} {
		if got := exitCode(interruptOr(ctx, err)); got != want {
			t.Errorf("exit code of %v after SIGTERM: %d, want %d", err, got, want)
		}
	}
}

func TestCodeNames(t *testing.T) {
	for want, err := range map[string]error{
		"InvalidArgument":  usagef("x"),
		"Cancelled":        interrupted{syscall.SIGINT},
		"DeadlineExceeded": fmt.Errorf("x: %w", context.DeadlineExceeded),
		"NotFound":         fmt.Errorf("x: %w", api.NotFound),
		"Uncertain":        errors.New("x"),
	} {
		if got := codeName(err); got != want {
			t.Errorf("code of %v: %s, want %s", err, got, want)
		}
	}
	if got := codeName(&api.Error{Code: api.Uncertain, Err: outOfTime{time.Second}}); got != "Uncertain" {
		t.Errorf("code of a write that nobody answered: %s, want Uncertain", got)
	}
}

// Programs read the errors of a command line that was not understood, too, also if -o json comes after
// the error.
func TestErrorsOfFlagsAsJSON(t *testing.T) {
	for line, want := range map[string]bool{
		"ls --wat -o json": true, "--timeout 1x ls --output json": true, "ls --wat -ojson": true, "ls --wat -o=json": true, "ls --wat --output=json": true,
		"ls --wat -o yaml": true, "ls --wat": false, "ls --wat -o": false, "ls --wat -o text": false, "acquire /ls/local/a --wat -- ls -o json": false,
	} {
		if got := formatAskedFor(strings.Fields(line)).ForPrograms(); got != want {
			t.Errorf("%s asks for a format of programs: %t, want %t", line, got, want)
		}
	}
}

// Errors that were joined are printed one by one; one that wraps two stays whole.
func TestSeveralErrors(t *testing.T) {
	var b bytes.Buffer
	(&globals{output: "text"}).printError(&b, errors.Join(errors.New("first"), errors.New("second")))
	if b.String() != "chubbyctl: first\nchubbyctl: second\n" {
		t.Errorf("printed %q", b.String())
	}
}

// A signal does not hide that a change may have been made, and says nothing of the kind of what changes nothing.
func TestInterruptWithoutAnAnswer(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.run("put there x")
		for _, c := range []struct {
			lost, line string
			told       bool
		}{
			{"Txn", "txn --put there=y --create new=x", true},
			{"SetContents", "put there z", true},
			{"Open", "put other x", true},
			{"Open", "mkdir dir", true},
			{"Open", "cat there", false},
			{"GetContentsAndStat", "cat there", false},
			{"Open", "acquire lock", false},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Second, func() { cancel(interrupted{os.Interrupt}) })
			lossy := s.cell.Lossy("web1", func(method string) bool { return strings.HasSuffix(method, "/"+c.lost) })
			_, err := (&stage{t: t, cell: s.cell, ctx: ctx, dial: lossy}).launch("", io.Discard, io.Discard, c.line)
			err = lastError(ctx, err)
			if told := err != nil && strings.Contains(err.Error(), "may or may not have been done"); exitCode(err) != 130 || told != c.told || told != (codeName(err) == "Uncertain") {
				t.Errorf("%s: %v (exit code %d, code %s), want 130, and told of the change: %t", c.line, err, exitCode(err), codeName(err), c.told)
			}
		}
	})
}

// What a command of several steps has done is said along with the signal that ended it.
func TestSignalBetweenSteps(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted{os.Interrupt})
	err := fmt.Errorf("%w; the change goes on", afterSteps(true, context.Cause(ctx)))
	if last := lastError(ctx, err); last.Error() != err.Error() || exitCode(last) != 130 {
		t.Errorf("%v (exit code %d)", last, exitCode(last))
	}
}

// That the cell cannot be reached says that nothing was changed, of a command that changes several nodes, too: wherever the network ends.
func TestUnavailableSaysThatNothingWasChanged(t *testing.T) {
	const exported = `{"chubby_export":1}
{"path":"","kind":"directory"}
{"path":"a","kind":"file","contents":"1","acl":{"read":"l","write":"l","change":"l"}}
{"path":"b","kind":"file","contents":"1"}
{"end":true,"nodes":3}
`
	for line, last := range map[string]string{ // and the calls after one of which the network ends
		"rm /ls/local/t/a /ls/local/t/b":       "/Delete",
		"rm -r /ls/local/t --yes":              "/Delete",
		"touch /ls/local/t/d /ls/local/t/e":    "/Open",
		"mkdir /ls/local/t/d /ls/local/t/e":    "/Open",
		"mkdir -p /ls/local/x/y /ls/local/x/z": "/Open",
		"cp -r /ls/local/t /ls/local/copy":     "/Open",
		"import --acl /ls/local/imported":      "/Open",
	} {
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := celltest.Start(t, 1)
				author := c.Client("author", func(cfg *client.Config) { cfg.NoCache = true })
				put := func(path, text string) {
					if _, err := author.Put(t.Context(), path, []byte(text)); err != nil {
						t.Fatal(err)
					}
				}
				if err := author.MkdirAll(t.Context(), "/ls/local/t"); err != nil {
					t.Fatal(err)
				}
				put("/ls/local/acl/l", "*\n")
				for _, name := range []string{"a", "b", "c"} {
					put("/ls/local/t/"+name, "1")
				}
				before, changed := countNodes(t, author, "/ls/local"), false
				for nth := int64(1); nth < 12; nth++ {
					var answers atomic.Int64
					said, code := runOver(t, c, c.Lossy("client", func(method string) bool {
						if strings.HasSuffix(method, last) && answers.Add(1) == nth {
							c.Cut("client") // this answer has come
						}
						return false
					}), line, exported)
					c.Heal("client")
					after := countNodes(t, author, "/ls/local")
					if after != before && code == exitUnavailable {
						t.Errorf("exit code %d, and of %d nodes there are %d after %d answers: %s", code, before, after, nth, said)
					}
					changed = changed || after != before
					before = after
				}
				if !changed {
					t.Error("it has changed nothing")
				}
			})
		})
	}
}

// countNodes returns how many nodes are below a directory.
func countNodes(t *testing.T, c *client.Client, dir string) (n int) {
	list, err := c.List(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		n++
		if s.Kind == api.Directory {
			n += countNodes(t, c, s.Path.String())
		}
	}
	return n
}
