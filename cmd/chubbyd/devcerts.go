package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chubbylock/chubby/internal/certs"
)

// devPrincipal is the principal of dev's client certificate.
const devPrincipal = "dev"

func (c *devCell) certificates() *certsOptions {
	return &certsOptions{dir: filepath.Join(c.dir, "tls"), days: leafDays}
}

// certificatesOf returns the keys of a replica's certificates.
func (c *devCell) certificatesOf(id string) map[string]any {
	o := c.certificates()
	return map[string]any{
		"tls-cert": o.file("server-"+id, "crt"), "tls-key": o.file("server-"+id, "key"), "tls-ca": o.file(clientAuthority, "crt"),
		"peer-tls-cert": o.file("replica-"+id, "crt"), "peer-tls-key": o.file("replica-"+id, "key"), "peer-tls-ca": o.file(replicaAuthority, "crt"),
		"token-keys": filepath.Join(o.dir, tokenKeys), "token-issuer": tokenIssuer, "token-audience": tokenAudience,
		"operators": devPrincipal,
	}
}

// makeCertificates makes missing certificates, with --tls.
func (c *devCell) makeCertificates() error {
	if !c.tls {
		return nil
	}
	o := c.certificates()
	if err := o.unlessThere(clientAuthority, func() error { return (&certsOptions{dir: o.dir, days: authorityDays}).makeAuthorities(io.Discard) }); err != nil {
		return err
	}
	for _, r := range c.Replicas {
		of := certs.Replica{Cell: c.Cell, ID: r.ID}
		if err := o.unlessThere("server-"+r.ID, func() error { return o.makeServer(io.Discard, of, []string{"127.0.0.1", "localhost"}) }); err != nil {
			return err
		}
	}
	if _, err := o.issuer(); err != nil {
		return fmt.Errorf("make the issuer of tokens: %w", err)
	}
	return o.unlessThere("client-"+devPrincipal, func() error { return o.makeClient(io.Discard, devPrincipal) })
}

// unlessThere makes a certificate unless it exists.
func (o *certsOptions) unlessThere(name string, create func() error) error {
	_, err := os.Stat(o.file(name, "crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return create()
	}
	return err
}

type devTLS struct {
	CA   string `json:"cacert"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

func (c *devCell) forClients() *devTLS {
	if !c.tls {
		return nil
	}
	o := c.certificates()
	return &devTLS{CA: o.file(clientAuthority, "crt"), Cert: o.file("client-"+devPrincipal, "crt"), Key: o.file("client-"+devPrincipal, "key")}
}

// clientFlags returns chubbyctl's flags for the certificates, if it does not find them itself.
func (c *devCell) clientFlags() string {
	files := c.forClients()
	if files == nil || filepath.Clean(c.dir) == filepath.Join(".chubby", c.Cell) {
		return ""
	}
	return fmt.Sprintf(" --cacert %s --cert %s --key %s", files.CA, files.Cert, files.Key)
}

// whoIsAsked says whether clients have to authenticate.
func (c *devCell) whoIsAsked() string {
	if c.tls {
		return "clients have to prove who they are; certificates are in " + c.certificates().dir + ", that of " + devPrincipal + " among them"
	}
	return "no client is asked to prove who it is here: anybody on this machine may act as anybody (insecure-principals)"
}
