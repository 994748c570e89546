package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A refusal names who holds the lock so that a person can go and ask.
func TestRefusalNamesHolders(t *testing.T) {
	err := nameHolders(&api.Error{Code: api.LockHeld, Message: "try again later", Holders: []api.Holder{
		{Session: 42, Principal: "ann", Host: "web3", PID: 4711, Reason: "deploy"}, {Session: 43}, {Session: 44}, {Session: 45}, {Session: 46},
	}})
	want := "held by ann on web3 (pid 4711, s42: deploy), somebody on an unknown host (pid 0, s43), " +
		"somebody on an unknown host (pid 0, s44), 2 more; try again later (LockHeld)"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	inBubble(t, func(t *testing.T, f *fake) {
		c, other := f.client(f.config()), f.client(f.config())
		if _, err := lockable(t, other, 0).Acquire(t.Context(), api.Exclusive); err != nil {
			t.Fatal(err)
		}
		h := lockable(t, c, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, waited := h.Acquire(ctx, api.Exclusive)
		_, tried := h.TryAcquire(t.Context(), api.Exclusive)
		for _, err := range []error{waited, tried} {
			var e *api.Error
			if !errors.As(err, &e) || len(e.Holders) != 1 || !strings.Contains(err.Error(), "held by "+whoHolds(e.Holders)) {
				t.Errorf("%v", err)
			}
		}
		closeClient(t, c)
		closeClient(t, other)
	})
}

// A session that the cell has ended is said to be over once.
func TestSessionExpiredSaysItOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		f.script(func(s seen) verb {
			return fail(api.Errorf(api.SessionExpired, "session s1 has ended; open a new one"))
		})
		_, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true})
		if !errors.Is(err, api.SessionExpired) || strings.Count(err.Error(), "open a new") != 1 {
			t.Errorf("%v", err)
		}
		f.script(nil)
		closeClient(t, c)
	})
}

// A handle that is to be for nothing is refused here, whether or not the cell answers.
func TestOpenForNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		_, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Create: Directory})
		if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "Read, Write or ChangeACL") || len(f.heard("Open")) != 0 {
			t.Errorf("%v", err)
		}
		closeClient(t, c)
	})
}

// A client that finds no cell says so to its log, soon, and not too often.
func TestSearchIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var text bytes.Buffer
		cfg := f.config()
		cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		f.cut(addresses()...)
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		if _, err := New(ctx, cfg); !errors.Is(err, api.Unavailable) {
			t.Fatal(err)
		}
		if n := strings.Count(text.String(), "no master of the cell has been found yet"); n != 4 || !strings.Contains(text.String(), "a:1") {
			t.Errorf("%d lines in 35 s:\n%s", n, text.String())
		}
	})
}

// Of a session that is in jeopardy, and of one that is safe again, there is a line of the log that has no error: there is none.
func TestNoErrorIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var text bytes.Buffer
		cfg := f.config()
		cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		c := f.client(cfg)
		f.cut(addresses()...)
		time.Sleep(20 * time.Second)
		f.heal()
		time.Sleep(20 * time.Second)
		closeClient(t, c)
		synctest.Wait() // what logs is a goroutine of its own
		if log := text.String(); !strings.Contains(log, "the session is jeopardy") || strings.Contains(log, "error=<nil>") {
			t.Error(log)
		}
	})
}

// A file of a token that is not there is said, and not what would be missing beside the token.
func TestTokenIsReadFirst(t *testing.T) {
	t.Setenv("CHUBBY_CONFIG", "")
	t.Setenv("HOME", t.TempDir())
	_, err := Dial(t.Context(), Config{Cell: "foo", Servers: []string{"h:1"}, Credentials: TokenFile("/nofile")})
	if !errors.Is(err, api.InvalidArgument) || strings.Count(err.Error(), "/nofile") != 1 || strings.Contains(err.Error(), "CA") {
		t.Error(err)
	}
}
