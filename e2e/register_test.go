package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// register is one file with one author. writes counts up when a write begins and when it is acknowledged, so it is odd
// while the contents may be the old or the new ones. A write writes the count that it ends with.
type register struct {
	path   string
	writes atomic.Int64
}

// check compares the result of a read with the count when it began: a read that no write overlaps
// returns the contents of the last acknowledged write. It reports whether no write overlapped.
func (r *register) check(before int64, got []byte) (judged bool, err error) {
	if r.writes.Load() != before || before%2 == 1 {
		return false, nil
	}
	if string(got) != fmt.Sprint(before) {
		return true, fmt.Errorf("%s: after write %d was acknowledged, and before another began, it reads %q", r.path, before, got)
	}
	return true, nil
}

// shelf is files that one client writes and many read, and what went wrong.
type shelf struct {
	files   []*register
	author  *client.Client
	handles []*client.Handle // the author's

	reads, judged, writes atomic.Int64
	slowest               atomic.Int64 // write, in nanoseconds

	mu    sync.Mutex // guards what follows
	wrong []error    // the first few
	many  int        // how many there were
}

// newShelf creates files in a directory.
func (w *world) newShelf(ctx context.Context, dir string, files int, author client.Config) *shelf {
	w.t.Helper()
	s := &shelf{author: w.client(author)}
	must(s.author.Open(ctx, dir, client.OpenOptions{Read: true, Create: client.Directory}))(w.t)
	for i := range files {
		r := &register{path: fmt.Sprintf("%s/%d", dir, i)}
		h := must(s.author.Open(ctx, r.path, client.OpenOptions{Write: true, Create: client.File, Contents: []byte("0")}))(w.t)
		s.files, s.handles = append(s.files, r), append(s.handles, h)
	}
	return s
}

// pick chooses a file: the first ones most often, so that many clients cache the same, and every file now and then.
func (s *shelf) pick() int {
	x := rand.Float64()
	return int(x * x * x * float64(len(s.files)))
}

// write makes writes, with pauses of up to pause, until stop is closed.
func (s *shelf) write(ctx context.Context, pause time.Duration, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(pause)):
		}
		i := s.pick()
		r := s.files[i]
		n := r.writes.Add(1) + 1
		began := time.Now()
		if _, err := s.handles[i].SetContents(ctx, []byte(fmt.Sprint(n))); err != nil {
			s.report(err)
			return
		}
		took := time.Since(began)
		r.writes.Store(n)
		s.writes.Add(1)
		s.slowest.Store(max(s.slowest.Load(), int64(took)))
	}
}

// reader is a client that reads files of a shelf. Most of its reads are of ten files that are its own to read, through
// handles that it keeps; one in twenty opens any file.
type reader struct {
	*shelf
	client *client.Client
	own    [10]*register
	kept   [10]*client.Handle
}

// newReader returns the reader of that number. If there are enough readers, each file belongs to two of them.
func (s *shelf) newReader(c *client.Client, number int) *reader {
	r := &reader{shelf: s, client: c}
	for i := range r.own {
		r.own[i] = s.files[(number*len(r.own)/2+i)%len(s.files)]
	}
	return r
}

// run reads once in that time, until stop is closed.
func (r *reader) run(ctx context.Context, every time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if err := r.read(ctx); err != nil {
			r.report(err)
		}
	}
}

// read reads one file.
func (r *reader) read(ctx context.Context) (err error) {
	if rand.N(20) == 0 {
		return r.open(ctx, r.client, r.files[r.pick()])
	}
	i := rand.N(len(r.own))
	if r.kept[i] == nil {
		if r.kept[i], err = r.client.Open(ctx, r.own[i].path, client.OpenOptions{Read: true}); err != nil {
			return err
		}
	}
	return r.look(ctx, r.kept[i], r.own[i], r.own[i].writes.Load())
}

// open opens a file, reads it and closes it.
func (s *shelf) open(ctx context.Context, c *client.Client, r *register) error {
	before := r.writes.Load()
	h, err := c.Open(ctx, r.path, client.OpenOptions{Read: true})
	if err != nil {
		return err
	}
	return errors.Join(s.look(ctx, h, r, before), h.Close(ctx))
}

// look reads a file through a handle.
func (s *shelf) look(ctx context.Context, h *client.Handle, r *register, before int64) error {
	got, _, err := h.Contents(ctx)
	if err != nil {
		return err
	}
	s.reads.Add(1)
	judged, err := r.check(before, got)
	if judged {
		s.judged.Add(1)
	}
	return err
}

// report keeps an error.
func (s *shelf) report(err error) {
	const most = 5
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.many++; len(s.wrong) < most {
		s.wrong = append(s.wrong, err)
	}
}

// verdict fails the test if an error was reported, and returns the figures.
func (s *shelf) verdict(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.wrong {
		t.Error(err)
	}
	if more := s.many - len(s.wrong); more > 0 {
		t.Errorf("and %d more", more)
	}
	return fmt.Sprintf("%d reads, %d of them judged; %d writes, the slowest %v",
		s.reads.Load(), s.judged.Load(), s.writes.Load(), time.Duration(s.slowest.Load()).Round(time.Millisecond))
}

// intact fails the test if one of the sessions is gone.
func intact(t *testing.T, clients ...*client.Client) {
	t.Helper()
	for _, c := range clients {
		report(t, c.Err(), "a session was lost")
	}
}
