//go:build linux

package client_test

import (
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A node is created on the condition that a lock is held, also one that a transaction cannot create, and neither created
// nor opened without.
func TestOpenIfSequencer(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		h, err := c.one.Open(t.Context(), "/ls/local/leader", client.OpenOptions{Write: true, Create: client.File})
		if err != nil {
			t.Fatal(err)
		}
		l := c.acquire(h)
		seq := l.Sequencer()
		if err := c.one.MkdirAll(t.Context(), "/ls/local/dir"); err != nil {
			t.Fatal(err)
		}
		opens := map[string]client.OpenOptions{
			"ephemeral": {Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("a"), IfSequencer: &seq},
			"directory": {Read: true, Create: client.Directory, IfSequencer: &seq},
			"file":      {Write: true, Create: client.File, IfSequencer: &seq},
		}
		made := map[string]*client.Handle{}
		for name, o := range opens {
			made[name], err = c.two.Open(t.Context(), "/ls/local/dir/"+name, o) // which need not be the holder
			if err != nil || !made[name].Created() || made[name].Path() != "/ls/local/dir/"+name {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if again, err := c.two.Open(t.Context(), "/ls/local/dir/file", opens["file"]); err != nil || again.Created() {
			t.Errorf("a file that is there: %v", err)
		}
		if _, err := c.two.Open(t.Context(), "/ls/local/no/file", opens["file"]); api.CodeOf(err) != api.NotFound {
			t.Errorf("in a directory that is not there: %v", err)
		}
		if err := h.Close(t.Context()); err != nil { // with the lock
			t.Fatal(err)
		}
		if _, err := made["file"].SetContents(t.Context(), []byte("b")); err != nil {
			t.Errorf("the handle is bound: %v", err)
		}
		dir, err := c.two.Open(t.Context(), "/ls/local/dir", client.OpenOptions{Read: true})
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range opens {
			if _, err := c.two.Open(t.Context(), "/ls/local/dir/late-"+name, o); api.CodeOf(err) != api.BadSequencer {
				t.Errorf("%s after the lock was released: %v", name, err)
			}
			if _, err := dir.Open(t.Context(), "late-"+name, o); api.CodeOf(err) != api.BadSequencer {
				t.Errorf("%s below a handle, after the lock was released: %v", name, err)
			}
		}
		if _, err := c.two.Open(t.Context(), "/ls/local/dir/file", opens["file"]); api.CodeOf(err) != api.BadSequencer {
			t.Errorf("a file that is there, after the lock was released: %v", err)
		}
		if list, err := c.two.List(t.Context(), "/ls/local/dir"); err != nil || len(list) != len(opens) {
			t.Errorf("%d nodes, %v; want %d", len(list), err, len(opens))
		}
	})
}
