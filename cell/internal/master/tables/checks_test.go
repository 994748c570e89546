package tables

import (
	"flag"
	"testing"
)

var full = flag.Bool("full", false, "post to 400 mailboxes, and not to 12")

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// equal fails the test unless got is want; what is a format for got.
func equal[T comparable](t testing.TB, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Errorf(what+"; want %v", got, want)
	}
}

// failIf fails the test, which goes on, if something is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends the test if something is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}
