package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// addPlugin puts a program of a verb into a directory that is all of PATH.
func addPlugin(t *testing.T, verb, script string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if err := os.WriteFile(filepath.Join(dir, "chubbyctl-"+verb), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
}

// A verb that chubbyctl does not have is run as a program: with the command line, standard input and the default cell, and its exit code is
// that of chubbyctl.
func TestPluginIsRun(t *testing.T) {
	addPlugin(t, "hello", `echo "$CHUBBY_CELL $#: $*"; read line; echo "$line"; exit 7`+"\n")
	t.Setenv("CHUBBY_CELL", "main")
	c := exec.Command(os.Args[0], "hello", "a b", "--unknown", "-o", "json")
	c.Stdin = strings.NewReader("in\n")
	out, err := c.Output()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 7 || string(out) != "main 4: a b --unknown -o json\nin\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// Global flags may stand before the verb, help and completion are the program's, and what chubbyctl has is its own.
func TestPluginIsFound(t *testing.T) {
	addPlugin(t, "hello", "exit 0\n")
	t.Setenv("HOME", t.TempDir())
	root, _ := newRootCommand()
	for line, want := range map[string]string{
		"hello":                             "",
		"-o json --cell=foo -v hello -x ls": "-o json --cell=foo -v -x ls",
		"--servers a:1 hello a -- hello":    "--servers a:1 a -- hello",
		"help hello put":                    "put --help",
		"__complete hello put x":            "__complete put x",
		"ls hello":                          "none",
		"cell hello":                        "none",
		"help ls":                           "none",
		"help":                              "none",
		"__complete hello":                  "none",
		"nosuch":                            "none",
		"--nosuch hello":                    "none",
		"--help hello":                      "none",
		"../hello":                          "none",
		"":                                  "none",
	} {
		got := "none"
		p, err := findPlugin(root, strings.Fields(line))
		if p != nil {
			got = strings.Join(p.args, " ")
		}
		if got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
		if p != nil && !slices.ContainsFunc(p.env, func(s string) bool { return s == "CHUBBY_CELL=local" || s == "CHUBBY_CELL=foo" }) {
			t.Errorf("%q: no default cell in the environment", line)
		}
	}
}

// The verbs of recipes are those of one program, which is told which.
func TestPluginOfRecipes(t *testing.T) {
	addPlugin(t, "recipes", "exit 0\n")
	root, _ := newRootCommand()
	for line, want := range map[string]string{
		"-v queue put x":       "-v queue put x",
		"barrier a":            "barrier a",
		"help queue put":       "queue put --help",
		"__complete queue put": "__complete queue put",
	} {
		if p, err := findPlugin(root, strings.Fields(line)); err != nil || p == nil || strings.Join(p.args, " ") != want {
			t.Errorf("%q: %+v, %v; want %q", line, p, err, want)
		}
	}
}

// Where the program of a verb that belongs to chubbyctl is not installed, it says how to install it.
func TestPluginIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	out, err := exec.Command(os.Args[0], "queue", "list", "/ls/local/films", "--dead").CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(string(out), "go install") {
		t.Errorf("%s, %v", out, err)
	}
}
