//go:build linux

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The examples do on a real cell what they say: they write something only if that
// fails. ExampleRenew runs until its process gets a signal, and is not run.
func TestExamplesRun(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdout, was := os.Stdout, config
	defer func() { os.Stdout, config = stdout, was }()
	os.Stdout = out
	synctest.Test(t, func(t *testing.T) {
		foo := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.Cell = "foo" })
		config = client.Config{Cell: "foo", Servers: foo.Servers(), Dialer: foo.Dial, Clock: celltest.Clock}
		c, err := client.New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Open(t.Context(), "/ls/foo/svc", client.OpenOptions{Read: true, Create: client.Directory}); err != nil {
			t.Fatal(err)
		}
		Example()
		x, err := c.Cell().Explain(t.Context(), "/ls/foo/svc/primary")
		if err != nil || x.Lock.Generation == 0 || len(x.Lock.Holders) != 0 {
			t.Errorf("after Example: %+v, %v; want a lock that was held, and is free", x.Lock, err)
		}
		ExampleCell_NewSession()
		if sessions, err := c.Cell().Sessions(t.Context()); err != nil || len(sessions) != 1 {
			t.Errorf("after ExampleCell_NewSession: %d sessions, %v; want this one", len(sessions), err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(out); err != nil || len(bytes.TrimSpace(text)) > 0 {
		t.Errorf("the examples wrote %q, %v", text, err)
	}
}

// A write that waits for the cache of a client that is cut off, and is given up, holds
// up no Release, nor what others write.
func TestReleaseBehindAWriteThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := celltest.Start(t, 3)
		dial := func(host string) *client.Client {
			c, err := client.New(t.Context(), client.Config{Servers: foo.Servers(), Dialer: foo.DialFrom(host), Clock: foo.ClockOf(host)})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		writer, reader := dial("writer"), dial("reader")
		open := func(c *client.Client, path string) *client.Handle {
			h, err := c.Open(t.Context(), path, client.OpenOptions{Read: true, Write: true, Create: client.File})
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		l, err := open(writer, "/ls/local/lock").Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		x := open(writer, "/ls/local/x")
		cached := open(reader, "/ls/local/x")
		for range 2 { // the second of the reads is answered by the cache
			if _, _, err := cached.Contents(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		foo.Cut("reader")
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		// The deadline is the master's as well: at that moment its answer, that the change was not made, may come first.
		if _, err := x.SetContents(brief, []byte("1")); brief.Err() == nil ||
			!errors.Is(err, api.Uncertain) && !errors.Is(err, api.Unavailable) {
			t.Errorf("the write did not wait: %v", err)
		}
		began := time.Now()
		if err := l.Release(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("Release: %v after %v", err, time.Since(began))
		}
		if _, err := x.SetContents(t.Context(), []byte("2")); err != nil || time.Since(began) > api.CacheLease {
			t.Errorf("the next write: %v after %v", err, time.Since(began))
		}
		foo.Heal("reader")
		time.Sleep(time.Minute)
		for _, c := range []*client.Client{writer, reader} {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
