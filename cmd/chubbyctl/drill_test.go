package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/certs"
)

// What each drill does is what its report says: of a cell whose clock is virtual it is known how long.
func TestDrillsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c := celltest.Start(t, 3, func(cfg *cell.Config) { cfg.InsecurePrincipals = true })
		victim, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("victim"), Clock: c.ClockOf("victim")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = victim.Close(ctx) }()
		h, err := victim.Open(ctx, "/ls/local/held", client.OpenOptions{Write: true, Create: client.File, LockDelay: 2 * time.Second})
		if err == nil {
			_, err = h.Acquire(ctx, api.Exclusive)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := &stage{t: t, cell: c, ctx: ctx}
		for _, one := range [][]string{
			{"drill failover local --yes", `no answer for \d+ms`, `The master was (r\d) \(epoch \d+\), and is`, `Locks held before: 1, of which 1 have`},
			{"drill failover local --hard --yes", `no answer for (\d+ms|1\.\d+s)`, `The master was`},
			{"drill outage 20s local --yes", `no answer for 2[01](\.\d+)?s`, `that session was jeopardy`, `that session was safe`, `0 have ended`},
			{"drill outage 20s local --yes --limit 20001ms", `is longer than --limit`},
			{"drill slow-client local --yes --for 4s", `no answer for 2\.[45]`, `silent for 4\.0s`, `until its cache lease of 2\.5s was over`},
			{"drill slow-client local --yes --for 2s", `silent for 2\.0s. The longest write waited 2\.0`},
			{"drill session-loss " + victim.Session().String() + " local --yes", `1 have ended`, `/ls/local/held was held by .*; that ended \(.*\), and nobody has it, since \d`},
		} {
			printed := s.run(one[0])
			for _, want := range one[1:] {
				if !regexp.MustCompile(want).MatchString(printed) {
					t.Errorf("%s: no %q in\n%s", one[0], want, printed)
				}
			}
			time.Sleep(20 * time.Second)
		}
	})
}

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
			var plan struct {
				Partial  bool
				Sessions int
			}
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

// A plan says of leases and lock-delays only where these matter: the holder of a lock whose session is ended loses it, however long they are.
func TestPlanOfSessionLossPromisesNothing(t *testing.T) {
	for kind, says := range map[string]bool{drillFailOver: true, drillHardFailOver: true, drillOutage: true, drillSessionLoss: false} {
		var b bytes.Buffer
		o := &drillOptions{globals: &globals{}, kind: kind, length: time.Second, out: &b}
		if err := o.printPlan(&cellView{}); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(b.String(), "no holder gives up its lock"); said != says {
			t.Errorf("%v:\n%s", kind, b.String())
		}
	}
}

// A report of a slow client says that the cache lease ended a wait only if it can have been so.
func TestReportOfSlowClientSaysWhatEndedTheWait(t *testing.T) {
	for longest, lapsed := range map[time.Duration]bool{time.Second: false, 2600 * time.Millisecond: true} {
		var b bytes.Buffer
		d := &drilling{drillOptions: &drillOptions{kind: drillSlowClient}, before: &cellView{}, silent: longest, noAnswer: longest, calls: 1}
		if err := term.Text.Draw(&b, d.drawReport); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(b.String(), "until its cache lease of 2.5s was over"); said != lapsed {
			t.Errorf("the longest write took %v:\n%s", longest, b.String())
		}
	}
}

// A drill that is interrupted looks at the cell once more, and says what it saw.
func TestInterruptedDrillLooksOnce(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		ctx, cancel := context.WithCancel(t.Context())
		holder := &stage{t: t, cell: s.cell, ctx: ctx}
		holder.beside.Go(func() { holder.try("", "acquire /ls/local/held") })
		defer holder.beside.Wait()
		defer cancel()
		time.Sleep(time.Second)
		drilling, interrupt := context.WithCancelCause(t.Context())
		s.ctx = drilling
		time.AfterFunc(2*time.Second, func() { interrupt(interrupted{os.Interrupt}) })
		out, said, code := s.try("", "-o json drill slow-client --yes --for 5s")
		if !strings.Contains(out, `"locks_kept":1`) || strings.Contains(out, `"epoch_after":null`) {
			t.Errorf("the cell has served all the time, and its lock is held: %d %s %s", code, out, said)
		}
	})
}

// Locks that were held before the end of a session count for the whole cell, as its sessions do.
func TestSessionLossCountsAllLocks(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		ctx, cancel := context.WithCancel(t.Context())
		holder := &stage{t: t, cell: s.cell, ctx: ctx}
		for _, name := range []string{"a", "b", "c"} {
			holder.beside.Go(func() { holder.try("", "acquire "+name) })
			time.Sleep(time.Second)
		}
		defer holder.beside.Wait()
		defer cancel()
		held, _, _ := s.try("", "-o json locks a")
		_, id, _ := strings.Cut(held, `"session":"`)
		id, _, _ = strings.Cut(id, `"`)
		out, said, code := s.try("", "drill session-loss "+id+" --yes")
		t.Logf("%d %s %s", code, out, said)
		if !strings.Contains(out, "Locks held before: 3") {
			t.Errorf("three locks were held")
		}
	})
}
