package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A command that finds no server says what to do: to start a cell, or which cells the configuration
// has.
func TestNothingListensIsExplained(t *testing.T) {
	t.Setenv("CHUBBY_CELLS", "main=h1:7421;other=h2:7421")
	t.Setenv("CHUBBY_CONFIG", "/dev/null")
	none := &api.Error{Code: api.Unavailable, Path: "/ls/man", Message: "no server of cell man is running", Err: client.NothingListens}
	err := (&globals{}).adviseOnCell(none)
	if exitCode(err) != exitUnavailable || !strings.Contains(err.Error(), "main, other") || strings.Contains(err.Error(), "every server") {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
	if other := errors.New("x"); !errors.Is((&globals{}).adviseOnCell(other), other) {
		t.Error("another error was changed")
	}
	for want, got := range map[string]string{
		"chubbyd dev":        (&globals{}).cellAdvice("local", nil),
		"check CHUBBY_CELLS": (&globals{}).cellAdvice("main", []string{"main"}),
		"check --servers":    (&globals{servers: []string{"h:1"}}).cellAdvice("local", nil),
		"main":               (&globals{}).cellAdvice("man", []string{"main"}),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("advice %q lacks %q", got, want)
		}
	}
}

// The advice takes nothing away from what a command says of such an error: its words, and its exit code.
func TestAdviceKeepsWhatWasSaid(t *testing.T) {
	t.Setenv("CHUBBY_CELLS", "main=h1:7421")
	none := &api.Error{Code: api.Unavailable, Path: "/ls/main/a", Message: "no server of cell main is running", Err: client.NothingListens}
	err := (&globals{}).adviseOnCell(&exitError{exitFailed, fmt.Errorf("wrote /ls/main/a, but what it is like now is not known: %w", none)})
	if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "wrote /ls/main/a") || !strings.Contains(err.Error(), "check CHUBBY_CELLS") {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
}

// A replica that is written where transfer takes a cell is found, whether nothing listens where that cell should be, or another
// cell answers.
func TestTransferToAReplicaAsACell(t *testing.T) {
	const advice = "if r9 is a replica: 'chubbyctl cell transfer --to r9'"
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		refuse := func(context.Context, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
		for _, row := range []struct {
			line    string
			dial    func(context.Context, string) (net.Conn, error)
			code    int
			advised bool
		}{
			{"cell transfer r9", refuse, exitUnavailable, true},
			{"cell transfer r9", c.Dial, exitFailed, true},
			{"cell transfer r9 --to r1", c.Dial, exitFailed, false},
			{"cell transfer", refuse, exitUnavailable, false},
		} {
			printed, code := runOver(t, c, row.dial, row.line, "")
			if code != row.code || strings.Contains(printed, advice) != row.advised {
				t.Errorf("%s: exit %d: %s", row.line, code, printed)
			}
		}
	})
}
