package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// Nobody is told that something was not done which may have been done.
func TestOutcomes(t *testing.T) {
	for _, err := range []error{
		api.Errorf(api.Uncertain, "the master was deposed"), api.Errorf(api.DeadlineExceeded, "no answer"), fmt.Errorf("asking: %w", context.DeadlineExceeded), errors.New("anything"),
		api.Errorf(api.SessionExpired, "the session has ended"),
	} {
		if said := outcomeOf(err); !strings.HasPrefix(said, "It is not known whether it was done") {
			t.Errorf("%v is told as %q", err, said)
		}
	}
	for _, code := range []api.Code{api.PermissionDenied, api.Unavailable, api.NotFound, api.InvalidArgument, api.QuotaExceeded} {
		if said := outcomeOf(api.Errorf(code, "no")); !strings.HasPrefix(said, "It was not done. ") {
			t.Errorf("%v is told as %q", code, said)
		}
	}
}
