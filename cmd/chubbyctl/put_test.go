package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
)

// --if-absent creates, and leaves what is there.
func TestPutIfAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, cell: celltest.Start(t, 1), ctx: t.Context()}
		for _, c := range []struct {
			line string
			code int
			said string
		}{
			{"put a 1 --if-absent", 0, ""},
			{"put a 2 --if-absent", exitMismatch, "exists already"},
			{"put a 2 --if-absent --if-generation 0", exitMismatch, "exists already"},
			{"put a 2 --if-absent --if-generation 7", exitUsage, "choose one"},
			{"put a 2 --if-absent --ephemeral", exitMismatch, "exists already"},
			{"put a 2 --if-generation 0 --ephemeral", exitMismatch, "exists already"},
			{"put a 2 --ephemeral", exitFailed, "exists already"},
			{"put b 2 --if-absent=false", 0, ""},
			{"put b 3 --if-absent=false", 0, ""},
		} {
			if _, said, code := s.try("", c.line); code != c.code || !strings.Contains(said, c.said) {
				t.Errorf("%s: %d, %q; want %d, %q", c.line, code, said, c.code, c.said)
			}
		}
		if out := s.run("cat a b"); !strings.Contains(out, "13") {
			t.Errorf("there is %q", out)
		}
	})
}

// --if-sequencer creates a file, with --if-absent or --ephemeral, only while the lock is held.
func TestPutCreatesIfSequencer(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
		s := &stage{t: t, cell: cell, ctx: t.Context()}
		lock, err := cell.Client("holder").Acquire(t.Context(), "/ls/local/lock")
		if err != nil {
			t.Fatal(err)
		}
		condition := " --if-sequencer " + lock.Sequencer().String()
		within, end := context.WithCancel(t.Context())
		here := &stage{t: t, cell: cell, ctx: within}
		here.beside.Go(func() { here.try("", "put here x --ephemeral"+condition) })
		time.Sleep(time.Second)
		if got := s.run("stat -o json here"); !strings.Contains(got, `"ephemeral":true`) {
			t.Errorf("with --ephemeral there is %s", got)
		}
		end()
		here.beside.Wait()
		for _, c := range []struct {
			line string
			code int
			said string
		}{
			{"put a 1 --if-absent", 0, ""},
			{"put a 2 --if-absent", exitMismatch, "exists already"},
			{"put no 2", exitFailed, "--if-absent creates one"},
			{"put no/where 2 --if-absent", exitFailed, "mkdir -p /ls/local/no"},
			{"put no/where 2 --ephemeral", exitFailed, "mkdir -p /ls/local/no"},
			{"cp a b --if-absent", 0, ""},
			{"cp a b --if-absent", exitMismatch, "exists already"},
		} {
			if _, said, code := s.try("", c.line+condition); code != c.code || !strings.Contains(said, c.said) {
				t.Errorf("%s: %d, %q; want %d, %q", c.line, code, said, c.code, c.said)
			}
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		brief, stop := context.WithTimeout(t.Context(), time.Minute) // a file that is created all the same is kept
		defer stop()
		s.ctx = brief
		for _, line := range []string{"put c 3 --if-absent", "put c 3 --ephemeral", "put c 3 --ephemeral --if-absent", "cp a c --if-absent"} {
			if _, said, code := s.try("", line+condition); code != exitMismatch || !strings.Contains(said, "BadSequencer") {
				t.Errorf("%s after the lock was released: %d, %q", line, code, said)
			}
		}
		s.ctx = t.Context()
		if got := s.run("cat a b") + s.run("ls"); !strings.Contains(got, "11") || strings.Contains(got, "c\n") {
			t.Errorf("there is %q", got)
		}
	})
}
