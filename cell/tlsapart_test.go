package cell_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
)

// A replica that runs does not take over an authority of both ports either: who has a certificate of the replicas' is no client,
// everybody else goes on, and the log says why.
func TestTLSAuthoritiesStayApart(t *testing.T) {
	logged := &testbed.Lines{}
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
		connect := func(files certs.Files) error {
			files.CA = c.clients.file
			limit, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			cl, err := client.New(limit, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("far"), Clock: celltest.Clock, TLS: files})
			if err == nil {
				err = cl.Close(ctx)
			}
			return err
		}
		own, err := os.ReadFile(c.clients.file)
		c.clients.check(err)
		theirs, err := os.ReadFile(c.replicas.file)
		c.clients.check(err)
		c.clients.check(os.WriteFile(c.clients.file, append(own, theirs...), 0o600))
		time.Sleep(12 * time.Second) // virtual: the files are read twice
		if err := connect(c.replicas.client("mallory")); !errors.Is(err, api.Unauthenticated) {
			t.Errorf("a certificate by the replicas' authority counts for a client: %v", err)
		}
		if err := connect(c.clients.client("alice")); err != nil {
			t.Error("of a client as before:", err)
		}
		if why := "have an authority in common"; !strings.Contains(strings.Join(logged.Take(), ""), why) {
			t.Errorf("the log does not say that the files %s", why)
		}
	}, func(cfg *cell.Config) { cfg.Logger = slog.New(slog.NewTextHandler(logged, nil)) })
}
