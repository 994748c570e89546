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

type devCertificates struct {
	Cert     string `yaml:"tls-cert,omitempty"`
	Key      string `yaml:"tls-key,omitempty"`
	CA       string `yaml:"tls-ca,omitempty"`
	PeerCert string `yaml:"peer-tls-cert,omitempty"`
	PeerKey  string `yaml:"peer-tls-key,omitempty"`
	PeerCA   string `yaml:"peer-tls-ca,omitempty"`
	Keys     string `yaml:"token-keys,omitempty"`
	Issuer   string `yaml:"token-issuer,omitempty"`
	Audience string `yaml:"token-audience,omitempty"`

	Operators string `yaml:"operators,omitempty"`
}

func (c *devCell) certificates() *certsOptions {
	return &certsOptions{dir: filepath.Join(c.dir, "tls"), days: leafDays}
}

func (c *devCell) certificatesOf(id string) devCertificates {
	o := c.certificates()
	return devCertificates{
		Cert: o.file("server-"+id, "crt"), Key: o.file("server-"+id, "key"), CA: o.file(clientAuthority, "crt"),
		PeerCert: o.file("replica-"+id, "crt"), PeerKey: o.file("replica-"+id, "key"), PeerCA: o.file(replicaAuthority, "crt"),
		Keys: filepath.Join(o.dir, tokenKeys), Issuer: tokenIssuer, Audience: tokenAudience,
		Operators: devPrincipal,
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
