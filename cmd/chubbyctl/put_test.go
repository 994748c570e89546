package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// The cell's refusal has the exit code of a condition that is not met if there was a condition, and only
// then.
func TestVerdictOfTheCell(t *testing.T) {
	for _, c := range []struct {
		given bool
		err   error
		want  int
	}{
		{true, api.Errorf(api.BadSequencer, "released"), exitMismatch},
		{false, api.Errorf(api.BadSequencer, "released"), exitFailed},
		{true, api.Errorf(api.LockHeld, "x"), exitFailed},
		{true, context.DeadlineExceeded, exitUnavailable},
		{true, nil, 0},
	} {
		s := &sequencerCondition{given: c.given}
		if got := exitCode(s.exitCodeOf(c.err)); got != c.want {
			t.Errorf("given %t, %v: exit code %d, want %d", c.given, c.err, got, c.want)
		}
	}
}

// Open creates a file with its contents, and has no condition but a sequencer, so a write with another condition never
// creates one.
func TestConditionsNeverCreate(t *testing.T) {
	held := &sequencer.Sequencer{} // any will do
	for _, c := range []struct {
		o          putOptions
		sequencer  *sequencer.Sequencer
		create     client.Creation
		contents   bool
		conditions int
	}{
		{putOptions{}, nil, client.File, true, 0},
		{putOptions{conditional: true}, nil, client.NewFile, true, 0},
		{putOptions{conditional: true, ifGeneration: 7}, nil, client.Existing, false, 1},
		{putOptions{}, held, client.Existing, false, 1},
		{putOptions{conditional: true, ifGeneration: 7}, held, client.Existing, false, 2},
		{putOptions{conditional: true}, held, client.NewFile, true, 0},
	} {
		opts, conditions := c.o.openOptions([]byte("x"), c.sequencer)
		if opts.Create != c.create || (opts.Contents != nil) != c.contents || len(conditions) != c.conditions || (opts.IfSequencer != nil) != (c.sequencer != nil && c.conditions == 0) {
			t.Errorf("--if-generation %d (%t) and sequencer %v: %+v, %d conditions", c.o.ifGeneration, c.o.conditional, c.sequencer, opts, len(conditions))
		}
	}
}

// What was created is printed as it was created: nobody is asked for it again, who might know what another has made of it
// since, or not answer.
func TestCreatedIsPrintedWithoutAnotherCall(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		said string
	}{
		{"put /ls/local/new text", 0, ""},
		{"put /ls/local/new text --if-generation 0", 0, ""},
		{"mkdir /ls/local/new", 0, ""},
		{"mkdir -p /ls/local/new/newer", 0, ""},
		{"touch /ls/local/new", 0, ""},
		{"-o json put /ls/local/new text", 0, `"size":4`},
		{"-o json put /ls/local/new text --if-absent", 0, `"size":4`},
		{"-v mkdir /ls/local/new", 0, "created /ls/local/new (content generation"},
		{"-o json mkdir -p /ls/local/new", 0, `"kind":"directory"`},
		{"-o json touch /ls/local/new", 0, `"size":0`},
		{"touch /ls/local/new /ls/local/new", 0, ""},
		{"-o json touch /ls/local/new /ls/local/new", exitFailed, "there is /ls/local/new, but"},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			s.dial = s.cell.Lossy("web1", func(method string) bool { return strings.HasSuffix(method, "/GetStat") })
			var printed buffer
			_, err := s.launch("", &printed, &printed, "--timeout 3s "+c.args)
			if said := printed.String() + fmt.Sprint(err); exitCode(err) != c.code || !strings.Contains(said, c.said) {
				t.Errorf("%s: exit code %d, %s; want %d with %q", c.args, exitCode(err), said, c.code, c.said)
			}
			if _, err := s.cell.Client("author").Open(t.Context(), "/ls/local/new", client.OpenOptions{Read: true}); err != nil {
				t.Errorf("%s: it was not made", c.args)
			}
		})
	}
}

// The file of put --ephemeral lives as long as the command. The command ends if the file is deleted, or
// its session has ended.
func TestEphemeralFileIsGone(t *testing.T) {
	for name, remove := range map[string]func(ctx context.Context, c *client.Client, file *client.Handle) error{
		"deleted": func(ctx context.Context, _ *client.Client, file *client.Handle) error { return file.Delete(ctx) },
		"ended": func(ctx context.Context, c *client.Client, _ *client.Handle) error {
			for s, err := range c.Cell().EachSession(ctx) {
				if err != nil {
					return err
				}
				if s.Session != c.Session() {
					return c.EndSession(ctx, s.Session, "a drill")
				}
			}
			return errors.New("the command has no session")
		},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.ctx = ctx
			left := make(chan error, 1)
			go func() {
				_, err := s.launch("", io.Discard, io.Discard, "put here up --ephemeral")
				left <- err
			}()
			time.Sleep(time.Second)
			c := s.cell.Client("author")
			file, err := c.Open(t.Context(), "/ls/local/here", client.OpenOptions{Write: true, Kind: api.File})
			if err != nil {
				t.Fatal(err)
			}
			if err := remove(ctx, c, file); err != nil {
				t.Error(err)
			}
			select {
			case err := <-left:
				if exitCode(err) != exitFailed || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: it left with %d: %v", name, exitCode(err), err)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s: it stays without its file", name)
				cancel()
				<-left
			}
		})
	}
}
