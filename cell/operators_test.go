package cell_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/chubbylock/chubby/raftfsm"
)

// as opens a session of a principal.
func as(t *testing.T, ctx context.Context, c *celltest.Cell, principal string) *client.Client {
	t.Helper()
	return dial(t, ctx, c, principal, client.Config{As: principal, NoCache: true})
}

// operatorsActs are what only operators may do, but what is done without a session (TestLookingTakesRights) and a restore (TestEveryRPCAsksForItsRights).
func operatorsActs(t *testing.T, ctx context.Context, c *celltest.Cell) map[string]func(by *client.Client) error {
	return map[string]func(by *client.Client) error{
		"end a session": func(by *client.Client) error {
			return by.EndSession(ctx, as(t, ctx, c, "victim").Session(), "because")
		},
		"break a lock": func(by *client.Client) error {
			holder := as(t, ctx, c, "holder")
			path := fmt.Sprintf("/ls/local/held-%v", holder.Session())
			acquire(t, ctx, open(t, ctx, holder, path, 0))
			return by.BreakLock(ctx, path, "because", true)
		},
		"set a quota": func(by *client.Client) error {
			return by.SetPrincipalQuota(ctx, "somebody", api.Quota{Nodes: 1})
		},
		"transfer": func(by *client.Client) error {
			_, err := by.Transfer(ctx, "")
			return err
		},
		"leave the cell without a master": func(by *client.Client) error {
			_, err := client.TransferWith(ctx, by, client.TransferOptions{Silent: true, Vacant: time.Second, Why: "because"})
			return err
		},
		"finish an upgrade": func(by *client.Client) error {
			_, err := by.FinishUpgrade(ctx)
			return err
		},
		"change a list": func(by *client.Client) error {
			h, err := by.Open(ctx, "/ls/local/acl/everyone", client.OpenOptions{Write: true})
			if err == nil {
				_, err = h.SetContents(ctx, []byte("*\n"))
			}
			return err
		},
		"make a list": func(by *client.Client) error {
			h, err := by.Open(ctx, "/ls/local/acl/mine", client.OpenOptions{Write: true, Create: client.NewFile})
			if err == nil {
				err = h.Delete(ctx)
			}
			return err
		},
		"change the ACL of the root": func(by *client.Client) error {
			h, err := by.Open(ctx, "/ls/local", client.OpenOptions{ChangeACL: true})
			if err == nil {
				_, err = h.SetACL(ctx, api.ACL{Read: "everyone"})
			}
			return err
		},
	}
}

// A cell begins with operators: they may do what concerns the whole cell, and others may use it. The list says who is one afterwards, whatever
// the configuration says.
func TestOperators(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		user := as(t, ctx, c, "user")
		lock := acquire(t, ctx, open(t, ctx, user, "/ls/local/lock", 0))
		report(t, as(t, ctx, c, "root").SetPrincipalQuota(ctx, "somebody", api.Quota{Nodes: 3}), "an operator") // TestAudit tries all acts
		fails(t, user.SetPrincipalQuota(ctx, "somebody", api.Quota{Nodes: 1}), api.PermissionDenied, "a user")
		report(t, user.EndSession(ctx, as(t, ctx, c, "user").Session(), "one's own"), "a user ends a session of its own")
		list := open(t, ctx, as(t, ctx, c, "root"), "/ls/local/acl/operators", 0)
		must(list.SetContents(ctx, []byte("user\n")))(t)
		c.Restart(c.FailOver())
		report(t, user.SetPrincipalQuota(ctx, "somebody", api.Quota{Nodes: 1}), "whom the list names since")
		if err := as(t, ctx, c, "root").SetPrincipalQuota(ctx, "somebody", api.Quota{Nodes: 2}); !errors.Is(err, api.PermissionDenied) {
			t.Error("whom the list does not name any more:", err)
		}
		report(t, lock.Release(ctx))
	}, func(cfg *cell.Config) { cfg.Operators = []string{"root"} })
}

// The first entry of a cell names its operators, and no later one does, also if everybody was restarted and the elected replica has applied nothing yet: a
// replica of an older version could not read it.
func TestOperatorsAreToldOnce(t *testing.T) {
	var told atomic.Int32
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		for range 3 {
			for _, id := range []string{"r1", "r2", "r3"} {
				c.Kill(id)
			}
			for _, id := range []string{"r1", "r2", "r3"} {
				c.Restart(id)
			}
			c.Master()
		}
		equal(t, told.Load(), 1, "%d entries name operators")
		report(t, as(t, ctx, c, "root").SetPrincipalQuota(ctx, "somebody", api.Quota{Nodes: 1}))
	}, func(cfg *cell.Config) {
		cfg.Operators = []string{"root"}
		cell.WatchEntries(cfg, func(e raftfsm.Entry) {
			if e.Commands[0].NewEpoch != nil && len(e.Commands[0].NewEpoch.Operators) > 0 {
				told.Add(1)
			}
		})
	})
}

// A cell that began without operators, as one of v0.1.0, is closed by the write of their list: others may not write it then, and who had the names of the
// root and of a list in a cache is told.
func TestWritingOperatorsClosesTheLists(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		reader := dial(t, ctx, c, "reader", client.Config{As: "reader"})
		author := dial(t, ctx, c, "alice", client.Config{As: "alice"})
		names := func(by *client.Client) (list [2]string) {
			for i, path := range []string{"/ls/local", "/ls/local/acl/everyone"} {
				h := must(by.Open(ctx, path, client.OpenOptions{Read: true}))(t)
				stat := must(h.Stat(ctx))(t)
				list[i] = stat.ACL.Change
			}
			return list
		}
		for _, by := range []*client.Client{reader, author} {
			if before := names(by); before != [2]string{"everyone", "everyone"} {
				t.Fatalf("the cell was closed before: %q", before)
			}
		}
		if _, err := author.Open(ctx, "/ls/local/acl/operators", client.OpenOptions{Write: true, Create: client.File, Contents: []byte("alice\n")}); err != nil {
			t.Fatal(err)
		}
		for _, by := range []*client.Client{reader, author} {
			equal(t, names(by), [2]string{"operators", "operators"}, "a cache still has %q")
		}
		for what, act := range operatorsActs(t, ctx, c) {
			if err := act(as(t, ctx, c, "user")); !errors.Is(err, api.PermissionDenied) {
				t.Errorf("a user may %s: %v", what, err)
			}
		}
		if _, err := as(t, ctx, c, "user").Open(ctx, "/ls/local/acl/operators", client.OpenOptions{Write: true}); !errors.Is(err, api.PermissionDenied) {
			t.Error("a user may write the list of operators:", err)
		}
	})
}

// Where clients have names and no list says who is an operator, each new master says what to do, and which key of the configuration does not help.
func TestMissingOperatorsAreSaid(t *testing.T) {
	log := &logged{}
	inTLSCell(t, 3, func(t *testing.T, ctx context.Context, c tlsCell) {
		c.Master()
		said := log.events(t, "event", "operators_missing")
		if len(said) == 0 || !strings.Contains(said[0].text("advice"), "chubbyctl acl file put /ls/local/acl/operators") || strings.Contains(said[0].text("advice"), "configuration") {
			t.Fatalf("the log has %v", said)
		}
		checkLogTables(t, log)
		for _, id := range []string{"r1", "r2", "r3"} { // the cell has begun: the key, which they have now, counts no more
			c.Kill(id)
			c.Restart(id)
			c.Master()
		}
		if said = log.events(t, "event", "operators_missing"); !strings.Contains(said[len(said)-1].text("advice"), "configuration (root) is for a cell that begins") {
			t.Errorf("the log has %v", said)
		}
		author := c.as(t, ctx, "alice")
		if _, err := author.Open(ctx, "/ls/local/acl/operators", client.OpenOptions{Write: true, Create: client.File, Contents: []byte("alice\n")}); err != nil {
			t.Fatal(err)
		}
		before := len(log.events(t, "event", "operators_missing"))
		c.Restart(c.FailOver())
		if after := log.events(t, "event", "operators_missing"); len(after) > before {
			t.Errorf("with a list: %v", after[before:])
		}
	}, log.to, func(cfg *cell.Config) {
		if strings.Contains(log.String(), "operators_missing") {
			cfg.Operators = []string{"root"}
		}
	})
}

// A cell whose ACLs admit no client becomes accessible again by a start with RestoreAccess, unless
// the replica becomes the master too long after its start.
func TestRestoreAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var restore atomic.Bool
		audits := t.TempDir()
		c := celltest.Start(t, 3, calm, func(cfg *cell.Config) {
			cfg.RestoreAccess = restore.Load()
			cfg.Audit.File = filepath.Join(audits, cfg.ID)
		})
		recorded := func(want int) {
			t.Helper()
			synctest.Wait()
			lines := 0
			for _, id := range []string{"r1", "r2", "r3"} {
				data := must(os.ReadFile(filepath.Join(audits, id)))(t)
				lines += strings.Count(string(data), `"event":"act","call":"RestoreAccess","on":"/ls/local","reason":"it was started with --restore-access","code":"OK"`)
			}
			equal(t, lines, want, "%d restores of the access are in the audit logs")
		}
		open := func() error {
			k := must(client.New(t.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Clock: celltest.Clock}))(t)
			defer func() { _ = k.Close(t.Context()) }()
			h, err := k.Open(t.Context(), "/ls/local/acl/everyone", client.OpenOptions{Write: true, Create: client.File})
			if err == nil {
				_, err = h.SetContents(t.Context(), nil)
			}
			return err
		}
		noErr(t, open()) // the last client that may open it
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
		mustFail(t, open(), api.PermissionDenied, "before RestoreAccess")
		recorded(0)
		restart(true)
		recorded(1)
		report(t, open(), "after a start with RestoreAccess")
		time.Sleep(2 * time.Minute)
		c.Transfer()
		fails(t, open(), api.PermissionDenied, "RestoreAccess of an old start still has an effect")
		recorded(1)
	})
}
