package api_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// A call that its context has ended has one of two codes, whatever wraps the reason.
func TestContextCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		want api.Code
	}{
		{context.DeadlineExceeded, api.DeadlineExceeded},
		{fmt.Errorf("asked in vain: %w", context.DeadlineExceeded), api.DeadlineExceeded},
		{context.Canceled, api.Cancelled},
		{errors.New("the program ends"), api.Cancelled},
	} {
		if got := api.ContextCode(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}

// A cause that the message ends with is said once.
func TestCauseIsSaidOnce(t *testing.T) {
	cause := errors.New("stat /nofile: no such file or directory")
	for message, want := range map[string]string{
		"":                         "read: (InvalidArgument): stat /nofile: no such file or directory",
		"the file":                 "read: the file (InvalidArgument): stat /nofile: no such file or directory",
		cause.Error():              "read: stat /nofile: no such file or directory (InvalidArgument)",
		"cacert: " + cause.Error(): "read: cacert: stat /nofile: no such file or directory (InvalidArgument)",
	} {
		if got := (&api.Error{Code: api.InvalidArgument, Op: "read", Message: message, Err: cause}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
