package cell_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/internal/certs"
)

// The warning of /readyz, which everybody may read, names keys of the configuration; the log has the files.
func TestWarningsNameNoFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, replicas, log := newAuthority(t), newAuthority(t), &testbed.Lines{}
		tc := &tokenCell{tlsCell: tlsCell{clients: clients}, keys: t.TempDir() + "/keys.json"}
		tc.issuer = newTokenIssuer(t, clients)
		tc.writeKeys(tc.issuer)
		var files cell.TLSFiles
		c := celltest.Start(t, 1, func(cfg *cell.Config) {
			cfg.InsecurePrincipals = false
			cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
			files = clients.put(clients.IssueServer([]string{cfg.ID}, 3*time.Minute))
			cfg.ClientTLS = files
			cfg.PeerTLS = replicas.put(replicas.IssueReplica(certs.Replica{Cell: cfg.Cell, ID: cfg.ID}, time.Hour))
			cfg.Tokens = cell.TokenConfig{Keys: tc.keys, Issuer: tokenIssuer, Audience: tokenAudience}
		})
		r := c.Replica(c.Master())
		if got := r.Health().Warning; got != "" {
			t.Fatalf("the warning is %q", got)
		}
		if err := os.Remove(tc.keys); err != nil {
			t.Fatal(err)
		}
		testbed.Pass(10 * time.Second)
		if got := r.Health().Warning; got != "the keys of tokens (token-keys) cannot be read; the log says why" {
			t.Errorf("without the keys of tokens the warning is %q", got)
		}
		testbed.Pass(150 * time.Second)
		if got := r.Health().Warning; !strings.HasPrefix(got, "the certificate in tls-cert expires on ") || strings.Contains(got, "/") {
			t.Errorf("before the end of the certificate the warning is %q", got)
		}
		lines := strings.Join(log.Take(), "")
		for _, want := range []string{tc.keys, "the certificate in tls-cert expires on ", "file=" + files.Cert} {
			if strings.Count(lines, want) == 0 {
				t.Errorf("the log does not have %q", want)
			}
		}
		if n := strings.Count(lines, "the certificate in tls-cert expires on "); n > 1 {
			t.Errorf("the log has the warning %d times", n)
		}
	})
}
