package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"
)

// pki is a world of authorities, some of which have signed others, were renewed, or have a name that another has, too.
type pki struct {
	keys  []*ecdsa.PrivateKey
	names []string // of the keys
	all   []*x509.Certificate
	of    map[*x509.Certificate]int // whose key it certifies
}

func newPKI(t *testing.T, r *mathrand.Rand) *pki {
	w := &pki{of: map[*x509.Certificate]int{}}
	for range 5 {
		w.keys = append(w.keys, must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t))
		w.names = append(w.names, fmt.Sprint("authority ", r.IntN(4)))
	}
	for i := range w.keys {
		w.certify(t, i, i)
		for range r.IntN(3) {
			w.certify(t, i, r.IntN(len(w.keys)))
		}
	}
	return w
}

// sign has the key by sign a certificate.
func (w *pki) sign(t *testing.T, c *x509.Certificate, key *ecdsa.PrivateKey, by int) *x509.Certificate {
	t.Helper()
	c.SerialNumber = must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100)))(t)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	issuer := &x509.Certificate{Subject: pkix.Name{CommonName: w.names[by]}, PublicKey: w.keys[by].Public()}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), w.keys[by]))(t)))(t)
}

func (w *pki) certify(t *testing.T, i, by int) {
	c := w.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: w.names[i]}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}, w.keys[i], by)
	w.all = append(w.all, c)
	w.of[c] = i
}

// some are certificates for a file.
func (w *pki) some(r *mathrand.Rand) (list []*x509.Certificate) {
	for range 1 + r.IntN(2) {
		list = append(list, w.all[r.IntN(len(w.all))])
	}
	return list
}

// chains calls try with every chain that may be shown with a certificate that a key has signed.
func (w *pki) chains(chain []*x509.Certificate, by int, try func([]*x509.Certificate)) {
	try(chain)
	if len(chain) == maxChain {
		return
	}
	for _, c := range w.all {
		if w.of[c] == by && !slices.Contains(chain, c) {
			issuer := slices.IndexFunc(w.keys, func(key *ecdsa.PrivateKey) bool {
				return c.Issuer.CommonName == w.names[slices.Index(w.keys, key)] && c.CheckSignatureFrom(&x509.Certificate{
					Raw: []byte{1}, Version: 3, BasicConstraintsValid: true, IsCA: true, PublicKeyAlgorithm: x509.ECDSA, PublicKey: key.Public(),
				}) == nil
			})
			if issuer >= 0 && issuer != by {
				w.chains(append(slices.Clone(chain), c), issuer, try)
			}
		}
	}
}

// However authorities have signed each other, and whatever is shown: if the files of the two ports are taken, what an authority of one file has signed itself counts
// nothing at the other port.
func TestNoChainIsOfBothPorts(t *testing.T) {
	r := mathrand.New(mathrand.NewPCG(1, 2)) // the worlds are the same each time, their keys are not
	apart, tried, counted := 0, 0, 0
	for range 100 {
		w := newPKI(t, r)
		ours, theirs := w.some(r), w.some(r)
		a, b := must(Open(Files{CA: authorityFile(t, ours...)}))(t), must(Open(Files{CA: authorityFile(t, theirs...)}))(t)
		if KeepApart(a, b) != nil {
			continue
		}
		apart++
		for i, key := range w.keys {
			ofOurs := slices.ContainsFunc(ours, func(c *x509.Certificate) bool { return w.of[c] == i })
			ofTheirs := slices.ContainsFunc(theirs, func(c *x509.Certificate) bool { return w.of[c] == i })
			leaf := w.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "leaf"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, DNSNames: []string{"leaf"}}, key, i)
			w.chains([]*x509.Certificate{leaf}, i, func(chain []*x509.Certificate) {
				tried++
				_, atOurs := a.Check(chain, x509.ExtKeyUsageClientAuth)
				_, atTheirs := b.Check(chain, x509.ExtKeyUsageClientAuth)
				if ofOurs && atTheirs == nil || ofTheirs && atOurs == nil {
					t.Errorf("a chain of %d certificates counts at the other port, too", len(chain))
				}
				if ofOurs && atOurs == nil || ofTheirs && atTheirs == nil {
					counted++
				}
			})
		}
	}
	if apart < 10 || tried < 100 || counted < 50 {
		t.Errorf("%d worlds, %d chains, %d of which count where they belong: too few", apart, tried, counted)
	}
}
