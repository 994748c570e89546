package master

import (
	"slices"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/testbed"
)

// equalAll is equal for lists; what is a format for args and got.
func equalAll[T comparable](t testing.TB, got, want []T, what string, args ...any) {
	t.Helper()
	failIf(t, !slices.Equal(got, want), what+"; want %v", append(args, got, want)...)
}

// The checks of testbed, for the tests of this package.

func must[T any](value T, err error) func(testbed.TB) T { return testbed.Must(value, err) }
func noErr(t testbed.TB, err error, what ...any)        { t.Helper(); testbed.NoErr(t, err, what...) }
func report(t testbed.TB, err error, what ...any)       { t.Helper(); testbed.Report(t, err, what...) }
func errOf[T any](_ T, err error) error                 { return err }
func equal[T comparable](t testbed.TB, got, want T, what string) {
	t.Helper()
	testbed.Equal(t, got, want, what)
}
func fails(t testbed.TB, err, want error, what ...any) {
	t.Helper()
	testbed.Fails(t, err, want, what...)
}
func mustFail(t testbed.TB, err, want error, what ...any) {
	t.Helper()
	testbed.MustFail(t, err, want, what...)
}
func failIf(t testbed.TB, wrong bool, format string, args ...any) {
	t.Helper()
	testbed.FailIf(t, wrong, format, args...)
}
func stopIf(t testbed.TB, wrong bool, format string, args ...any) {
	t.Helper()
	testbed.StopIf(t, wrong, format, args...)
}
