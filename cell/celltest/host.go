package celltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/client"
)

// closeTime bounds how long a session is waited for that is closed at the end of a test: its host may be cut off.
const closeTime = time.Second

// Run runs a test in a bubble of testing/synctest, in which time is virtual, with a cell of n replicas, as Start starts
// it. What the test begins has to end before it returns; clients of Client and Keep are closed then.
func Run(t *testing.T, n int, test func(t *testing.T, c *Cell)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, Start(t, n)) })
}

// ConfigOf returns the configuration of a client on the named host: its network is DialFrom, its clock
// ClockOf, and the host's name is its principal. Change the rest as you like.
func (c *Cell) ConfigOf(host string) client.Config {
	return client.Config{Servers: c.Servers(), Dialer: c.DialFrom(host), Clock: c.ClockOf(host), As: host}
}

// Client opens a session on the named host, with ConfigOf as the edits change it, and closes it when the test ends, for
// which it waits a second of the test's time at most. It fails the test if the session cannot be opened.
func (c *Cell) Client(host string, edits ...func(*client.Config)) *client.Client {
	c.t.Helper()
	return open(c, host, edits, client.New)
}

// Keep is Client for a Keeper, which opens another session when one was lost.
func (c *Cell) Keep(host string, edits ...func(*client.Config)) *client.Keeper {
	c.t.Helper()
	return open(c, host, edits, client.Keep)
}

// open opens a session in some way, and has it closed at the end.
func open[T interface {
	Close(ctx context.Context) error
}](c *Cell, host string, edits []func(*client.Config), how func(context.Context, client.Config) (T, error)) T {
	c.t.Helper()
	cfg := c.ConfigOf(host)
	for _, edit := range edits {
		edit(&cfg)
	}
	one, err := how(c.t.Context(), cfg)
	if err != nil {
		c.t.Fatalf("open a session on %s: %v", host, err)
	}
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_ = one.Close(ctx) // its host may be cut off, or its session gone
	})
	return one
}

// owner is the part of a test that a Cell needs.
type owner interface {
	// Helper is that of testing.TB, as the others are.
	Helper()
	// Fatal ends the test.
	Fatal(args ...any)
	// Fatalf ends the test.
	Fatalf(format string, args ...any)
	// Cleanup has f called at the end, the last one first.
	Cleanup(f func())
	// Context ends before what Cleanup calls.
	Context() context.Context
	// TempDir returns a directory that is removed at the end.
	TempDir() string
}

// New is Start for programs without a testing.TB: an Example function, TestMain, or a program that
// is being tried out. The caller must Close the cell. It runs in real time, so a lease takes its
// seconds. Where a method of Cell would fail a test, it panics.
func New(n int, edits ...func(*cell.Config)) (c *Cell, err error) {
	dir, err := os.MkdirTemp("", "celltest-")
	if err != nil {
		return nil, fmt.Errorf("start a cell: %w", err)
	}
	p := &process{dir: dir}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case failure:
			p.close()
			err = fmt.Errorf("start a cell: %w", cause.error)
		default:
			panic(cause)
		}
	}()
	return start(p, n, edits), nil
}

// Close stops a cell that New started, and removes its data. Close its clients before. Do not call
// Close for a cell of Start, which stops with its test.
func (c *Cell) Close() {
	if p, ok := c.t.(*process); ok {
		p.close()
	}
}

// process is the owner of a cell that does not belong to a test.
type process struct {
	dir    string
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex // guards cleanups
	cleanups []func()
}

// failure is what Fatal panics with.
type failure struct{ error }

func (p *process) Helper()                           {}
func (p *process) Fatal(args ...any)                 { panic(failure{errors.New(fmt.Sprint(args...))}) }
func (p *process) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }
func (p *process) Context() context.Context          { return p.ctx }
func (p *process) TempDir() string                   { return p.dir }

func (p *process) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

func (p *process) close() {
	p.cancel(errors.New("the cell is closed"))
	p.mu.Lock()
	cleanups := p.cleanups
	p.cleanups = nil
	p.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
	_ = os.RemoveAll(p.dir) // what remains is in the system's temporary directory
}
