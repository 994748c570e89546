package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
)

// Pair is a certificate and its key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// backdated is how long before now a new certificate begins to count: clocks differ.
const backdated = 5 * time.Minute

// NewAuthority makes a certificate authority.
func NewAuthority(name string, lifetime time.Duration) (Pair, error) {
	return Pair{}.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, lifetime)
}

// IssueServer makes the certificate that a replica shows to clients, who dial it by one of these
// names or IP addresses.
func (a Pair) IssueServer(hosts []string, lifetime time.Duration) (Pair, error) {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	return a.sign(c, lifetime)
}

// IssueReplica makes the certificate that a replica shows to the others.
func (a Pair) IssueReplica(r Replica, lifetime time.Duration) (Pair, error) {
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "replica " + r.ID + " of cell " + r.Cell}, URIs: []*url.URL{r.URI()}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, lifetime)
}

// IssueClient makes the certificate of a principal: a SPIFFE ID, or a name like that of a host.
func (a Pair) IssueClient(principal string, lifetime time.Duration) (Pair, error) {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: principal}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if strings.HasPrefix(principal, "spiffe:") {
		u, err := url.Parse(principal)
		if err != nil {
			return Pair{}, err
		}
		c.URIs = []*url.URL{u}
	} else {
		c.DNSNames = []string{principal}
	}
	made, err := a.sign(c, lifetime)
	if err != nil {
		return made, err
	}
	name, err := PrincipalOf(made.Cert)
	if err == nil && name != principal {
		err = fmt.Errorf("%q cannot be the principal of a certificate: it would be read as %q", principal, name)
	}
	return made, err
}

// sign makes a certificate with a key of its own; one that nobody signs signs itself.
func (a Pair) sign(c *x509.Certificate, lifetime time.Duration) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return Pair{}, err
	}
	c.NotBefore = wallNow().Add(-backdated)
	c.NotAfter = wallNow().Add(lifetime)
	by := a
	if a.Cert == nil {
		by = Pair{Cert: c, Key: key}
	} else if c.NotAfter.After(a.Cert.NotAfter) {
		c.NotAfter = a.Cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.Cert, key.Public(), by.Key)
	if err != nil {
		return Pair{}, err
	}
	made, err := x509.ParseCertificate(der)
	return Pair{Cert: made, Key: key}, err
}

// Revoke makes a revocation list, in DER, of what was revoked before and of more certificates that this authority
// has signed.
func (a Pair) Revoke(before []x509.RevocationListEntry, certs ...*x509.Certificate) ([]byte, error) {
	list := &x509.RevocationList{
		Number: big.NewInt(wallNow().UnixMilli()), ThisUpdate: wallNow(), NextUpdate: a.Cert.NotAfter, RevokedCertificateEntries: before,
	}
	for _, c := range certs {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: wallNow()})
	}
	return x509.CreateRevocationList(rand.Reader, list, a.Cert, a.Key)
}

// Write writes a certificate and its key, which only their owner may read, and replaces nothing.
func (a Pair) Write(cert, key string) error {
	der, err := x509.MarshalPKCS8PrivateKey(a.Key)
	if err != nil {
		return err
	}
	if err := writeNew(key, 0o600, "PRIVATE KEY", der); err != nil {
		return err
	}
	if err := writeNew(cert, 0o644, "CERTIFICATE", a.Cert.Raw); err != nil {
		return errors.Join(err, os.Remove(key))
	}
	return nil
}

func writeNew(name string, mode os.FileMode, kind string, der []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err = errors.Join(pem.Encode(file, &pem.Block{Type: kind, Bytes: der}), file.Sync(), file.Close()); err != nil {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// ReadPair reads what Write wrote.
func ReadPair(cert, key string) (Pair, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return Pair{}, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return Pair{}, fmt.Errorf("%s: a key that does not sign", key)
	}
	return Pair{Cert: pair.Leaf, Key: signer}, nil
}
