package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
)

// A plan says whether it counts everything: somebody who is no operator sees his own sessions, and the locks that he may read, and would take what
// he sees for all that there is.
func TestPlanOfWhoMayNotSeeEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, replicas := authorityIn(t), authorityIn(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		c := celltest.Start(t, 1, func(cfg *cell.Config) {
			cfg.InsecurePrincipals, cfg.Operators = false, []string{"ops"}
			cfg.ClientTLS = clients.put(t, "server")(clients.IssueServer([]string{cfg.ID}, time.Hour))
			cfg.PeerTLS = replicas.put(t, "peer")(replicas.IssueReplica(certs.Replica{Cell: cfg.Cell, ID: cfg.ID}, time.Hour))
		})
		files := map[string]certs.Files{}
		for _, who := range []string{"ops", "bob"} {
			files[who] = clients.put(t, who)(clients.IssueClient(who, time.Hour))
			one, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom(who), Clock: c.ClockOf(who), TLS: files[who]})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = one.Close(ctx) }()
			h, err := one.Open(ctx, "/ls/local/"+who, client.OpenOptions{Read: true, Write: true, Create: client.File})
			if err == nil {
				_, err = h.Acquire(ctx, api.Exclusive)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s := &stage{t: t, cell: c, ctx: ctx}
		for who, partial := range map[string]bool{"ops": false, "bob": true} {
			f := files[who]
			at := " --cacert " + f.CA + " --cert " + f.Cert + " --key " + f.Key
			printed := s.run("drill failover local" + at)
			said := strings.Contains(printed, "You are no operator of this cell") && strings.Contains(printed, "it would hit others, too") && strings.Contains(printed, "You may see 1 session")
			if said != partial || strings.Contains(printed, "The cell has 2 sessions") == partial {
				t.Errorf("%s is told\n%s", who, printed)
			}
			var plan drillPlan
			text, _, _ := strings.Cut(s.run("-o json drill failover local"+at), "}\n")
			if err := json.Unmarshal([]byte(text+"}"), &plan); err != nil || plan.Partial != partial || plan.Sessions != map[bool]int{false: 2, true: 1}[partial] {
				t.Errorf("%s: %v\n%s", who, err, text)
			}
		}
	})
}

// authority signs certificates.
type authority struct {
	certs.Pair
	dir string
}

func authorityIn(t *testing.T) authority {
	t.Helper()
	made, err := certs.NewAuthority("test", 24*time.Hour)
	a := authority{made, t.TempDir()}
	if err == nil {
		err = a.Write(filepath.Join(a.dir, "ca.crt"), filepath.Join(a.dir, "ca.key"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// put writes a certificate, and returns where it is.
func (a authority) put(t *testing.T, name string) func(made certs.Pair, err error) certs.Files {
	return func(made certs.Pair, err error) certs.Files {
		t.Helper()
		f := certs.Files{Cert: filepath.Join(a.dir, name+".crt"), Key: filepath.Join(a.dir, name+".key"), CA: filepath.Join(a.dir, "ca.crt")}
		if err == nil {
			err = made.Write(f.Cert, f.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}
