package master

import (
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// Of what a transaction deletes, nothing of its author's stays in the table of copies, as after a Delete: else the copies of names that come
// and go would stay until the session ends.
func TestTxnForgetsCopiesOfWhatItDeletes(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author := m.client(t, 1)
		for _, path := range []string{"/ls/local/a", "/ls/local/b"} {
			h := author.open(t, path, api.MayCreate).Handle
			if _, cacheable, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); err != nil || !cacheable {
				t.Fatal(cacheable, err)
			}
		}
		commit := func(o ...raftfsm.Operation) {
			t.Helper()
			if _, err := m.Files.Txns.Commit(t.Context(), &raftfsm.Txn{Mutation: author.mutation(), Operations: o}); err != nil {
				t.Fatal(err)
			}
		}
		commit(raftfsm.Operation{Name: "/a", Delete: true}, raftfsm.Operation{Name: "/b", Create: api.MayCreate, Contents: []byte("x")})
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		copies := m.tables.copyset.names[author.who.Session]
		if copies["/a"] != nil || copies["/b"] == nil {
			t.Errorf("of what was deleted %v is there, of what was written %v", copies["/a"], copies["/b"])
		}
	})
}
