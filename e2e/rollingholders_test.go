package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// holders are a client of each version, with a lock and an ephemeral file that they have
// from the beginning of a test to its end.
type holders struct {
	cell    *rollingCell
	client  *client.Client
	session api.SessionID
	lock    *client.Lock
	token   uint64

	release   *process // chubbyctl acquire
	ephemeral *process // chubbyctl put --ephemeral
	line      acquiredLine
}

// acquiredLine is the line by which chubbyctl acquire says what it holds.
type acquiredLine struct {
	Sequencer string
	Token     uint64
	Session   string
}

const heldDir = "/ls/local/held"

// startHolders opens the sessions of the holders.
func (r *rollingCell) startHolders(released release) *holders {
	t := r.t
	t.Helper()
	h := &holders{cell: r, client: r.newClient(client.Config{})}
	h.session = h.client.Session()
	for _, file := range []client.OpenOptions{
		{Read: true, Create: client.Directory},
		{Read: true, Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("here")},
	} {
		path := heldDir
		if file.Ephemeral {
			path += "/ephemeral-new"
		}
		if _, err := h.client.Open(t.Context(), path, file); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := r.handle(t.Context(), h.client, heldDir+"/new").Acquire(t.Context(), api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	h.lock, h.token = lock, lock.Token()

	ctl := func(args ...string) *process {
		return spawn(t, nil, released.bin("chubbyctl"), append([]string{"--servers", r.servers(), "-o", "json"}, args...)...)
	}
	h.ephemeral = ctl("put", "--ephemeral", heldDir+"/ephemeral-released", "here")
	h.ephemeral.waitFor("\n", 20*time.Second)
	h.release = ctl("acquire", heldDir+"/released")
	h.release.waitFor("\n", 20*time.Second)
	if err := json.Unmarshal([]byte(h.release.stdout.String()), &h.line); err != nil {
		t.Fatalf("chubbyctl acquire printed %q: %v", &h.release.stdout, err)
	}
	return h
}

// check fails the test unless everything is held as at the beginning, as clients of both
// versions see it.
func (h *holders) check(t *testing.T, released release) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if h.client.Err() != nil || h.client.Session() != h.session || h.lock.Err() != nil || h.lock.Token() != h.token {
		t.Errorf("session %v is %v now (%v), token %d is %d (%v)", h.session, h.client.Session(), h.client.Err(), h.token, h.lock.Token(), h.lock.Err())
	}
	for _, p := range []*process{h.release, h.ephemeral} {
		if !p.running() {
			t.Errorf("%s has ended: %s%s", p.cmd, &p.stdout, &p.stderr)
		}
	}
	for _, seq := range []string{h.lock.Sequencer().String(), h.line.Sequencer} {
		if err := h.client.CheckSequencer(ctx, seq); err != nil {
			t.Errorf("a holder's sequencer: %v", err)
		}
		if r := h.cell.ctlOf(released, "sequencer", "check", seq); r.code != 0 {
			t.Errorf("a holder's sequencer, for the release's chubbyctl: exit %d, %s", r.code, r.err)
		}
	}
	locks, err := h.client.Cell().Locks(ctx, heldDir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		heldDir + "/new":      fmt.Sprintf("%v by session %v with token %d", api.Exclusive, h.session, h.token),
		heldDir + "/released": fmt.Sprintf("%v by session %v with token %d", api.Exclusive, h.line.Session, h.line.Token),
	}
	for _, l := range locks {
		if len(l.Holders) != 1 {
			t.Errorf("%s has %d holders", l.Path, len(l.Holders))
			continue
		}
		if got := fmt.Sprintf("%v by session %v with token %d", l.Mode, l.Holders[0].Session, l.Generation); got != want[l.Path] {
			t.Errorf("%s is held %s, want %s", l.Path, got, want[l.Path])
		}
		delete(want, l.Path)
	}
	if len(want) > 0 {
		t.Errorf("these are not held any more: %v", want)
	}
	list := h.cell.ctlOf(released, "ls", heldDir)
	for _, name := range []string{"ephemeral-new", "ephemeral-released"} {
		if !strings.Contains(list.out, name+"\n") {
			t.Errorf("%s is gone: %s%s", name, list.out, list.err)
		}
	}
}
