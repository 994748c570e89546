package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
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
