package tables

import (
	"flag"

	"github.com/chubbylock/chubby/cell/internal/testbed"
)

var full = flag.Bool("full", false, "post to 400 mailboxes, and not to 12")

// The checks of testbed, for the tests of this package.

func must[T any](value T, err error) func(testbed.TB) T { return testbed.Must(value, err) }
func equal[T comparable](t testbed.TB, got, want T, what string) {
	t.Helper()
	testbed.Equal(t, got, want, what)
}
func failIf(t testbed.TB, wrong bool, format string, args ...any) {
	t.Helper()
	testbed.FailIf(t, wrong, format, args...)
}
func stopIf(t testbed.TB, wrong bool, format string, args ...any) {
	t.Helper()
	testbed.StopIf(t, wrong, format, args...)
}
