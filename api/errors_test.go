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
