package main

import (
	"context"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// Text that is not a sequencer is not valid, above all the empty text of a variable that is not set: the
// change must not become an unconditional one.
func TestIfSequencer(t *testing.T) {
	good := sequencer.Sequencer{Cell: api.CellID(strings.Repeat("0", 32)), Path: api.MustParsePath("/ls/foo/a"), Mode: api.Exclusive, Generation: 7}.String()
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"put", "/ls/local/a", "x", "--if-sequencer", ""}, 3, "empty"},
		{[]string{"put", "/ls/local/a", "x", "--if-sequencer", "junk"}, 3, "not a sequencer"},
		{[]string{"put", "/ls/local/a", "x", "--if-sequencer", good}, 69, ""},
		{[]string{"put", "/ls/local/a", "x", "--if-sequencer", good, "--if-generation", "3"}, 69, ""},
		{[]string{"put", "/ls/local/a", "x", "--if-sequencer", "", "--ephemeral"}, 3, "empty"},
		{[]string{"put", "/ls/local/a", "x", "--if-sequencer", "", "--if-absent"}, 3, "empty"},
		{[]string{"rm", "/ls/local/a", "--if-sequencer", ""}, 3, "empty"},
		{[]string{"rm", "/ls/local/a", "--if-sequencer", "junk"}, 3, "not a sequencer"},
		{[]string{"rm", "/ls/local/a", "--if-sequencer", good}, 69, ""},
	} {
		_, err := execute(t, nil, c.args...)
		if exitCode(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %v (exit code %d), want %d with %q", c.args, err, exitCode(err), c.code, c.text)
		}
	}
}

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
