package testbed

// TB is a test, also one of package rapid.
type TB interface {
	Helper()
	Error(args ...any)
	Fatal(args ...any)
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
