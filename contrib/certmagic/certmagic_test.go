package chubbystorage_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// issuer is a certificate authority in this program. It counts what it issues.
type issuer struct {
	key *ecdsa.PrivateKey

	mu     sync.Mutex // guards what follows
	issued map[string]int
	now    map[string]bool // what is being issued
	faults []string
}

func newIssuer() (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return &issuer{key: key, issued: map[string]int{}, now: map[string]bool{}}, err
}

func (*issuer) IssuerKey() string { return "test" }

func (i *issuer) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	name := request.DNSNames[0]
	i.mu.Lock()
	i.issued[name]++
	if i.now[name] {
		i.faults = append(i.faults, "two at a time obtain "+name)
	}
	i.now[name] = true
	serial := int64(len(i.issued) * 1000)
	i.mu.Unlock()
	select { // as a real one takes its time
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
	i.mu.Lock()
	i.now[name] = false
	i.mu.Unlock()
	template := x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: request.DNSNames, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, request.PublicKey, i.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// certificates has three instances of CertMagic obtain the same certificates at the same time, and renew and clean them: one
// obtains each, and all have it.
func (p *trial) certificates(busy, ctx context.Context) {
	authority, err := newIssuer()
	if err != nil {
		p.Error(err)
		return
	}
	var instances []*certmagic.Config
	for range 3 {
		var cfg *certmagic.Config
		cache := certmagic.NewCache(certmagic.CacheOptions{
			GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return cfg, nil }, Logger: zap.NewNop(),
		})
		p.Cleanup(cache.Stop)
		cfg = certmagic.New(cache, certmagic.Config{Storage: p.storage(ctx), Issuers: []certmagic.Issuer{authority}, Logger: zap.NewNop()})
		instances = append(instances, cfg)
	}
	each := func(what string, do func(cfg *certmagic.Config) error) {
		var all sync.WaitGroup
		for i, cfg := range instances {
			all.Go(func() {
				if err := do(cfg); err != nil {
					p.Errorf("%s, instance %d: %v", what, i, err)
				}
			})
		}
		all.Wait()
	}
	domains := 0
	for ; busy.Err() == nil && !p.Failed(); domains++ {
		name := fmt.Sprintf("host%d.example.com", domains)
		each("obtain", func(cfg *certmagic.Config) error { return cfg.ObtainCertSync(ctx, name) })
		authority.mu.Lock()
		if n := authority.issued[name]; n != 1 {
			p.Errorf("%s was obtained %d times", name, n)
		}
		authority.mu.Unlock()
		each("renew", func(cfg *certmagic.Config) error { return cfg.RenewCertSync(ctx, name, true) })
		each("use", func(cfg *certmagic.Config) error {
			_, err := cfg.CacheManagedCertificate(ctx, name)
			return err
		})
		each("clean", func(cfg *certmagic.Config) error {
			return certmagic.CleanStorage(ctx, cfg.Storage, certmagic.CleanStorageOptions{Logger: zap.NewNop(), ExpiredCerts: true, OCSPStaples: true})
		})
	}
	for _, fault := range authority.faults {
		p.Error(fault)
	}
	p.Logf("%d certificates were obtained by three instances, and renewed by each", domains)
}
