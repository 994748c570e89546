package certs

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// authorityFile writes certificates of authorities into a file of their own.
func authorityFile(t *testing.T, list ...*x509.Certificate) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.crt")
	writeAuthorities(t, name, list...)
	return name
}

func writeAuthorities(t *testing.T, name string, list ...*x509.Certificate) {
	t.Helper()
	ders := make([][]byte, 0, len(list))
	for _, c := range list {
		ders = append(ders, c.Raw)
	}
	next := filepath.Join(t.TempDir(), "next") // another file each time, which is noticed whatever its size and time
	must(0, os.WriteFile(next, pemOf("CERTIFICATE", ders...), 0o600))(t)
	must(0, os.Rename(next, name))(t)
}

// below makes an authority that another one has signed, or itself if that has no certificate. It may sign others.
func below(t *testing.T, by Pair, name string) Pair {
	t.Helper()
	return must(by.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, time.Hour))(t)
}

// certified returns another certificate of an authority, with the same key, as edited; by signs it, or the authority itself if that has none.
func certified(t *testing.T, a, by Pair, edit func(*x509.Certificate)) Pair {
	t.Helper()
	next := *a.Cert
	next.SerialNumber, next.NotAfter = big.NewInt(time.Now().UnixNano()), a.Cert.NotAfter.Add(time.Hour)
	if edit != nil {
		edit(&next)
	}
	if by.Cert == nil {
		by = Pair{Cert: &next, Key: a.Key}
	}
	der := must(x509.CreateCertificate(rand.Reader, &next, by.Cert, a.Key.Public(), by.Key))(t)
	return Pair{Cert: must(x509.ParseCertificate(der))(t), Key: a.Key}
}

// An authority is known by its key, and by who has signed it: what makes one of the authorities of clients one of replicas, or the other way around, is found when the replica
// starts and each time that a file changes.
func TestAuthoritiesAreKeptApartByTheirKeys(t *testing.T) {
	one, root := must(NewAuthority("one", time.Hour))(t), below(t, Pair{}, "root")
	between := below(t, root, "between")
	other := must(NewAuthority("other", time.Hour))(t)
	for name, c := range map[string]struct {
		clients, peers []*x509.Certificate
		want           string
	}{
		"apart":                          {clients: []*x509.Certificate{one.Cert}, peers: []*x509.Certificate{other.Cert}},
		"the same":                       {clients: []*x509.Certificate{one.Cert}, peers: []*x509.Certificate{one.Cert}, want: "in common"},
		"renewed":                        {clients: []*x509.Certificate{one.Cert}, peers: []*x509.Certificate{certified(t, one, Pair{}, nil).Cert}, want: "in common"},
		"renewed under another name":     {clients: []*x509.Certificate{one.Cert}, peers: []*x509.Certificate{certified(t, one, Pair{}, func(c *x509.Certificate) { c.Subject, c.RawSubject = pkix.Name{CommonName: "anew"}, nil }).Cert}, want: "in common"},
		"beside others":                  {clients: []*x509.Certificate{other.Cert, one.Cert}, peers: []*x509.Certificate{root.Cert, certified(t, one, Pair{}, nil).Cert}, want: "in common"},
		"clients' below the replicas'":   {clients: []*x509.Certificate{between.Cert}, peers: []*x509.Certificate{root.Cert}, want: "is signed by"},
		"replicas' below the clients'":   {clients: []*x509.Certificate{root.Cert}, peers: []*x509.Certificate{between.Cert}, want: "is signed by"},
		"clients' signed by both":        {clients: []*x509.Certificate{certified(t, one, root, nil).Cert}, peers: []*x509.Certificate{root.Cert}, want: "is signed by"},
		"both below one that is in none": {clients: []*x509.Certificate{between.Cert}, peers: []*x509.Certificate{below(t, root, "beside").Cert}},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(what string, err error) {
				t.Helper()
				if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, errShared) || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: %v, want %q", what, err, c.want)
				}
			}
			check("at the start", KeepApart(storeOf(t, c.clients...), storeOf(t, c.peers...)))
			nobody := must(NewAuthority("nobody", time.Hour))(t).Cert
			for _, swapped := range []bool{false, true} {
				first, second := c.clients, c.peers
				if swapped {
					first, second = second, first
				}
				stays, changes := authorityFile(t, first...), authorityFile(t, nobody)
				a, b := must(Open(Files{CA: stays}))(t), must(Open(Files{CA: changes}))(t)
				must(0, KeepApart(a, b))(t)
				writeAuthorities(t, changes, second...)
				_, err := b.Refresh()
				check("while it runs", err)
			}
		})
	}
}

// The clients' authority may be signed by the replicas' through certificates that are in no file: what is shown leads through them, and
// does not count at the Raft port, neither at first nor any more.
func TestNoPathLeadsThroughTheOtherAuthorities(t *testing.T) {
	root := below(t, Pair{}, "root")
	middle := below(t, root, "middle") // in no file
	clients := below(t, middle, "clients")
	peerFile, clientFile := authorityFile(t, root.Cert), authorityFile(t, must(NewAuthority("another", time.Hour))(t).Cert)
	atPeers, atClients := must(Open(Files{CA: peerFile}))(t), must(Open(Files{CA: clientFile}))(t)
	must(0, KeepApart(atClients, atPeers))(t)
	posing := must(clients.IssueReplica(Replica{Cell: "main", ID: "r1"}, time.Hour))(t)
	shown := []*x509.Certificate{posing.Cert, clients.Cert, middle.Cert}
	ours := must(middle.IssueReplica(Replica{Cell: "main", ID: "r2"}, time.Hour))(t)

	early := must(atPeers.Check(shown, x509.ExtKeyUsageClientAuth))(t) // as long as it is nobody's authority
	writeAuthorities(t, clientFile, certified(t, clients, Pair{}, nil).Cert)
	if !must(atClients.Refresh())(t) {
		t.Fatal("the clients' authority is not taken over")
	}
	if _, err := atPeers.Check(shown, x509.ExtKeyUsageClientAuth); err == nil || !strings.Contains(err.Error(), "authority of the other port") {
		t.Errorf("a certificate of the clients' authority counts among replicas: %v", err)
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if _, err := atPeers.verify(shown, use, ""); err == nil {
			t.Errorf("it counts for use %d", use)
		}
	}
	if atPeers.Counts(early) {
		t.Error("what counted once still does")
	}
	if _, err := atPeers.Check([]*x509.Certificate{ours.Cert, middle.Cert}, x509.ExtKeyUsageClientAuth); err != nil {
		t.Error("a path beside it is refused:", err)
	}
	if _, err := atPeers.Check([]*x509.Certificate{clients.Cert, middle.Cert}, x509.ExtKeyUsageAny); err == nil {
		t.Error("the certificate of the authority itself counts")
	}
}

// An authority that is renewed, with its key, cuts nobody off: every connection would be accepted again. One of other limits does.
func TestRenewedAuthorityKeepsConnections(t *testing.T) {
	a := below(t, Pair{}, "a")
	file := authorityFile(t, a.Cert)
	s := must(Open(Files{CA: file}))(t)
	proof := must(s.Check([]*x509.Certificate{must(a.IssueClient("c", time.Hour))(t).Cert}, x509.ExtKeyUsageClientAuth))(t)
	for _, c := range []struct {
		what  string
		now   Pair
		count bool
	}{
		{"renewed", certified(t, a, Pair{}, nil), true},
		{"signed by another", certified(t, a, below(t, Pair{}, "root"), nil), true},
		{"for other hosts", certified(t, a, Pair{}, func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.org"} }), false},
		{"of another name", certified(t, a, Pair{}, func(c *x509.Certificate) { c.Subject, c.RawSubject = pkix.Name{CommonName: "b"}, nil }), false},
		{"of another key", below(t, Pair{}, "a"), false},
	} {
		writeAuthorities(t, file, c.now.Cert)
		if !must(s.Refresh())(t) || s.Counts(proof) != c.count {
			t.Errorf("%s: %v, want %v", c.what, s.Counts(proof), c.count)
		}
	}
}

// A renewed authority may write its name in another way, and does so in its lists: what it has signed before is revoked by them all the same.
func TestRevokedUnderAnotherSpelling(t *testing.T) {
	spelled := func(tag int) pkix.RDNSequence {
		return pkix.RDNSequence{{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: asn1.RawValue{Tag: tag, Bytes: []byte("corporate")}}}}
	}
	a := below(t, Pair{}, "corporate")
	old := certified(t, a, Pair{}, func(c *x509.Certificate) { c.RawSubject = must(asn1.Marshal(spelled(asn1.TagPrintableString)))(t) })
	renewed := certified(t, a, Pair{}, func(c *x509.Certificate) { c.RawSubject = must(asn1.Marshal(spelled(asn1.TagUTF8String)))(t) })
	if string(old.Cert.RawSubject) == string(renewed.Cert.RawSubject) {
		t.Fatal("the names are spelled alike")
	}
	revoked, other := must(old.IssueClient("revoked", time.Hour))(t), must(old.IssueClient("other", time.Hour))(t)
	list := filepath.Join(t.TempDir(), "ca.crl")
	must(0, os.WriteFile(list, pemOf("X509 CRL", must(renewed.Revoke(nil, revoked.Cert))(t)), 0o600))(t)
	s := must(Open(Files{CA: authorityFile(t, old.Cert, renewed.Cert), CRL: list}))(t)
	if _, err := s.Check([]*x509.Certificate{revoked.Cert}, x509.ExtKeyUsageClientAuth); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("who is in the list is let in: %v", err)
	}
	if _, err := s.Check([]*x509.Certificate{other.Cert}, x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
}

// A certificate counts though its authority was renewed more often than signatures are checked for a chain, and though ended
// certificates of the authority come before the newest in the file.
func TestEndedCertificatesOfAnAuthorityHideNone(t *testing.T) {
	a := below(t, Pair{}, "a")
	client := must(a.IssueClient("c", time.Hour))(t).Cert
	for what, ended := range map[string]bool{"renewed often": false, "ended": true} {
		var list []*x509.Certificate
		for n := range maxChain + 1 {
			list = append(list, certified(t, a, Pair{}, func(c *x509.Certificate) {
				if ended {
					c.NotBefore = wallNow().Add(-time.Duration(maxChain-n+2) * time.Hour)
					c.NotAfter = c.NotBefore.Add(50 * time.Minute)
				}
			}).Cert)
		}
		if _, err := storeOf(t, append(list, a.Cert)...).Check([]*x509.Certificate{client}, x509.ExtKeyUsageClientAuth); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
