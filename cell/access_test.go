package cell_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A cell whose ACLs admit no client becomes accessible again by a start with RestoreAccess, unless
// the replica becomes the master too long after its start.
func TestRestoreAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var restore atomic.Bool
		audits := t.TempDir()
		c := celltest.Start(t, 3, func(cfg *cell.Config) {
			cfg.RestoreAccess = restore.Load()
			cfg.Audit.File = filepath.Join(audits, cfg.ID)
		})
		recorded := func(want int) {
			t.Helper()
			synctest.Wait()
			lines := 0
			for _, id := range []string{"r1", "r2", "r3"} {
				data, err := os.ReadFile(filepath.Join(audits, id))
				if err != nil {
					t.Fatal(err)
				}
				lines += strings.Count(string(data), `"event":"act","call":"RestoreAccess","on":"/ls/local","reason":"it was started with --restore-access","code":"OK"`)
			}
			if lines != want {
				t.Errorf("%d restores of the access are in the audit logs, want %d", lines, want)
			}
		}
		open := func() error {
			k, err := client.New(t.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Clock: celltest.Clock})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = k.Close(t.Context()) }()
			h, err := k.Open(t.Context(), "/ls/local/acl/everyone", client.OpenOptions{Write: true, Create: client.File})
			if err == nil {
				_, err = h.SetContents(t.Context(), nil)
			}
			return err
		}
		if err := open(); err != nil { // the last client that may open it
			t.Fatal(err)
		}
		restart := func(set bool) {
			restore.Store(set)
			for _, do := range []func(string){c.Kill, c.Restart} {
				for _, id := range []string{"r1", "r2", "r3"} {
					do(id)
				}
			}
			c.Master()
		}
		restart(false)
		if err := open(); api.CodeOf(err) != api.PermissionDenied {
			t.Fatalf("before RestoreAccess: %v", err)
		}
		recorded(0)
		restart(true)
		recorded(1)
		if err := open(); err != nil {
			t.Errorf("after a start with RestoreAccess: %v", err)
		}
		time.Sleep(2 * time.Minute)
		c.Transfer()
		if err := open(); api.CodeOf(err) != api.PermissionDenied {
			t.Errorf("RestoreAccess of an old start still has an effect: %v", err)
		}
		recorded(1)
	})
}
