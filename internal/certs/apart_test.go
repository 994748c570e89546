package certs

import (
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"
)

// replace puts the authority of another kit in the place of this one's, in its file.
func (k kit) replace(t *testing.T, by kit) {
	t.Helper()
	must(0, os.WriteFile(k.file("ca.crt"), must(os.ReadFile(by.file("ca.crt")))(t), 0o600))(t)
}

// Two stores that are kept apart never have an authority in common, whichever of them is read again: the old ones stay in use,
// and the new ones are taken over once the other store has none of them any more.
func TestStoresStayApart(t *testing.T) {
	first, second, third := newKit(t), newKit(t), newKit(t)
	open := func() (a, b kit, clients, peers *Store) {
		a, b = newKit(t), newKit(t)
		a.replace(t, first)
		b.replace(t, second)
		clients, peers = must(Open(Files{CA: a.file("ca.crt")}))(t), must(Open(Files{CA: b.file("ca.crt")}))(t)
		must(0, KeepApart(clients, peers))(t)
		return a, b, clients, peers
	}
	accepts := func(s *Store, k kit) bool {
		_, err := s.Check([]*x509.Certificate{k.client(t, "c").Cert}, x509.ExtKeyUsageClientAuth)
		return err == nil
	}
	refused := func(s *Store) {
		t.Helper()
		for range 2 { // also the second time
			if changed, err := s.Refresh(); changed || !errors.Is(err, errShared) || !strings.Contains(err.Error(), "in common") {
				t.Errorf("an authority of both is taken over: %v, %v", changed, err)
			}
		}
	}

	a, _, clients, peers := open()
	a.replace(t, second)
	refused(clients)
	if accepts(clients, second) || !accepts(clients, first) || !accepts(peers, second) {
		t.Error("the clients' authority is not what it was")
	}

	_, b, clients, peers := open()
	b.replace(t, first)
	refused(peers)
	if accepts(peers, first) || !accepts(peers, second) || !accepts(clients, first) {
		t.Error("the replicas' authority is not what it was")
	}

	a, b, clients, peers = open()
	a.replace(t, second) // and the replicas get another, in the same moment
	b.replace(t, third)
	refused(clients)
	if !must(peers.Refresh())(t) || !must(clients.Refresh())(t) || !accepts(clients, second) || accepts(clients, first) || !accepts(peers, third) {
		t.Error("authorities that have nothing in common are not taken over")
	}

	a.replace(t, third)
	if same := must(Open(Files{CA: a.file("ca.crt")}))(t); !errors.Is(KeepApart(same, peers), errShared) {
		t.Error("stores that have an authority in common are kept apart")
	}
}
