package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// A negative quota is refused without a call, and what 0 means is said of a principal and of a directory as it is.
func TestNegativeQuota(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		for _, err := range []error{c.SetDirectoryQuota(t.Context(), "/ls/foo/d", -1, 0), c.SetDirectoryQuota(t.Context(), "/ls/foo/d", 0, -1)} {
			if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "0 is no limit") {
				t.Errorf("of a directory: %v", err)
			}
		}
		if err := c.SetPrincipalQuota(t.Context(), "ci", api.Quota{Handles: -1}); !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "0 stands for the default") {
			t.Errorf("of a principal: %v", err)
		}
		if n := len(f.heard("SetQuota")); n > 0 {
			t.Errorf("%d calls", n)
		}
		closeClient(t, c)
	})
}
