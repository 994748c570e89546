package client

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A master of an older version does not know what a transaction is (the fake is one). It is asked once, and the error
// says what to do.
func TestTxnAtAnOlderMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		began := time.Now()
		_, err := c.Txn().Put("/ls/foo/a", nil).Put("/ls/foo/b", nil).Commit(t.Context())
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.InvalidArgument || e.Op != "commit" || e.Path != "/ls/foo/a" || !errors.Is(err, OlderMaster) || !strings.Contains(e.Message, "the master of cell foo, a, version 0.1.0, does not know Txn yet") || !strings.Contains(e.Message, "upgrade the replicas") || time.Since(began) > time.Second {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
		closeClient(t, c)
	})
}
