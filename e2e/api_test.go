package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// suite is one run of one case of the API's suite, with a directory of its own and two
// principals. The cases are what the paper promises of names, handles, locks, events and ACLs
// (Chubby §2.3-§2.6), through the exported client. They pass while masters die, too: calls
// wait for the next master, and a case looks again when a fail-over may have lost an event.
type suite struct {
	*testing.T
	w          *world
	ctx        context.Context //nolint:containedctx // of the case
	dir        string
	alice, bob *client.Client
}

// apiCases are the cases by group; docs/conformance.md names them.
func apiCases() map[string]map[string]func(*suite) {
	return map[string]map[string]func(*suite){
		"nodes": nodeCases(), "handles": handleCases(), "locks": lockCases(), "events": eventCases(), "acl": aclCases(), "loss": lossCases(),
	}
}

// TestAPI runs the suite on five processes.
func TestAPI(t *testing.T) {
	besideOthers(t)
	w := start(t)
	runAPI(t, w, "once")
}

// TestAPIWhileMastersDie runs it again and again while kill -9 hits the master every five seconds.
func TestAPIWhileMastersDie(t *testing.T) {
	w := start(t)
	stop, done := make(chan struct{}), make(chan int)
	go func() { done <- killEvery(t, w, 5*time.Second, stop) }()
	began := time.Now()
	for round := 0; round < *rounds || time.Since(began) < 11*time.Second; round++ {
		if !t.Run(fmt.Sprintf("round%d", round), func(t *testing.T) { runAPI(t, w, fmt.Sprint("round", round)) }) {
			break
		}
	}
	close(stop)
	if kills := <-done; kills == 0 {
		t.Error("no master was killed")
	} else {
		t.Logf("%d masters killed in %v", kills, time.Since(began).Round(time.Second))
	}
}

// killEvery kills the master with kill -9 again and again, and returns how often. chubbyd dev starts it again.
func killEvery(t *testing.T, w *world, every time.Duration, stop <-chan struct{}) (kills int) {
	for {
		select {
		case <-stop:
			return kills
		case <-time.After(every):
		}
		master := w.master()
		if pid := w.replicas()[master].PID; master != "" && syscall.Kill(pid, syscall.SIGKILL) == nil {
			kills++
			t.Logf("killed master %s", master)
		}
	}
}

// master returns the master's id, "" without a master.
func (w *world) master() string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Servers: strings.Split(w.servers(), ",")})
	if err != nil {
		return ""
	}
	status, err := c.Status(ctx)
	if err = errors.Join(err, c.Close()); err != nil {
		return ""
	}
	return status.Master
}

// cable is a client's connection to the network, which can be cut.
type cable struct {
	mu    sync.Mutex // guards what follows
	conns []net.Conn
	isCut bool
}

func (c *cable) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		return nil, errors.Join(errors.New("the cable is cut"), conn.Close())
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for _, conn := range c.conns {
		_ = conn.Close() // the nearest to a cut cable that this side can do
	}
}

// runAPI runs every case once, several at a time.
func runAPI(t *testing.T, w *world, round string) {
	for group, cases := range apiCases() {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for name, run := range cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
					t.Cleanup(cancel)
					s := &suite{
						T: t, w: w, ctx: ctx, dir: "/ls/local/" + strings.Join([]string{round, group, name}, "-"),
						alice: w.clientFor(t, client.Config{As: "alice"}), bob: w.clientFor(t, client.Config{As: "bob", NoCache: true}),
					}
					s.open(s.alice, "", client.OpenOptions{Read: true, Create: client.NewDirectory})
					run(s)
				})
			}
		})
	}
}

// open opens a node by its name below the case's directory ("" is that directory), or by a whole path.
func (s *suite) open(c *client.Client, name string, opts client.OpenOptions) *client.Handle {
	s.Helper()
	h, err := c.Open(s.ctx, s.path(name), opts)
	stopIf(s, err != nil, "open %s: %v", name, err)
	return h
}

func (s *suite) path(name string) string {
	switch {
	case name == "":
		return s.dir
	case strings.HasPrefix(name, "/ls/"):
		return name
	}
	return s.dir + "/" + name
}

// file opens a file with all rights, and creates it.
func (s *suite) file(c *client.Client, name string) *client.Handle {
	s.Helper()
	return s.open(c, name, client.OpenOptions{Read: true, Write: true, ChangeACL: true, Create: client.File})
}

// ok fails the case for an error.
func (s *suite) ok(err error) {
	s.Helper()
	noErr(s, err)
}

// fails fails the case unless the error is of that code, and says something.
func (s *suite) fails(err error, code api.Code) *api.Error {
	s.Helper()
	var e *api.Error
	stopIf(s, !errors.As(err, &e) || e.Code != code, "got %v, want %v", err, code)
	failIf(s, e.Message == "", "%v says too little", err)
	return e
}

// stat returns a node's metadata.
func (s *suite) stat(h *client.Handle) api.Stat {
	s.Helper()
	stat, err := h.Stat(s.ctx)
	s.ok(err)
	return stat
}

// write replaces a file's contents.
func (s *suite) write(h *client.Handle, text string, options ...client.WriteOption) api.Stat {
	s.Helper()
	stat, err := h.SetContents(s.ctx, []byte(text), options...)
	s.ok(err)
	return stat
}

// contents returns those of a file.
func (s *suite) contents(h *client.Handle) string {
	s.Helper()
	text, _, err := h.Contents(s.ctx)
	s.ok(err)
	return string(text)
}

// acquire takes a lock.
func (s *suite) acquire(h *client.Handle, mode api.LockMode) *client.Lock {
	s.Helper()
	l, err := h.Acquire(s.ctx, mode)
	s.ok(err)
	return l
}

// soon fails the case unless the condition is true soon.
func (s *suite) soon(what string, holds func() bool) {
	s.Helper()
	stopIf(s, !comesTrue(20*time.Second, 5*time.Millisecond, holds), "%s did not come true", what)
}
