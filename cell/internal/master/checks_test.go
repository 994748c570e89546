package master

import (
	"errors"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error; what says of what.
func noErr(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(what, err)...)
	}
}

// report fails the test if there is an error, and lets it go on.
func report(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Error(append(what, err)...)
	}
}

// errOf returns the error of a call alone.
func errOf[T any](_ T, err error) error { return err }

// equal fails the test unless got is want; what is a format for got.
func equal[T comparable](t testing.TB, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Errorf(what+"; want %v", got, want)
	}
}

// fails fails the test unless err has this code, and lets it go on.
func fails(t testing.TB, err error, code api.Code, what ...any) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Error(append(what, err, "want", code)...)
	}
}

// mustFail ends the test unless err has this code.
func mustFail(t testing.TB, err error, code api.Code, what ...any) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Fatal(append(what, err, "want", code)...)
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

// equalAll is equal for lists; what is a format for args and got.
func equalAll[T comparable](t testing.TB, got, want []T, what string, args ...any) {
	t.Helper()
	failIf(t, !slices.Equal(got, want), what+"; want %v", append(args, got, want)...)
}
