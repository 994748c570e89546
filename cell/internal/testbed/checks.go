package testbed

import "errors"

// TB is a test, also one of package rapid.
type TB interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Must returns what a call returned that had to succeed: Must(f())(t).
func Must[T any](value T, err error) func(TB) T {
	return func(t TB) T {
		t.Helper()
		NoErr(t, err)
		return value
	}
}

// NoErr ends the test if there is an error; what says of what.
func NoErr(t TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(what, err)...)
	}
}

// Report fails the test if there is an error, and lets it go on.
func Report(t TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Error(append(what, err)...)
	}
}

// ErrOf returns the error of a call alone.
func ErrOf[T any](_ T, err error) error { return err }

// Equal fails the test unless got is want; what is a format for got.
func Equal[T comparable](t TB, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Errorf(what+"; want %v", got, want)
	}
}

// Fails fails the test unless err is or has that error, and lets it go on.
func Fails(t TB, err, want error, what ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Error(append(what, err, "want", want)...)
	}
}

// MustFail ends the test unless err is or has that error.
func MustFail(t TB, err, want error, what ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatal(append(what, err, "want", want)...)
	}
}

// FailIf fails the test, which goes on, if something is wrong.
func FailIf(t TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// StopIf ends the test if something is wrong.
func StopIf(t TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}
