package main

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
	"github.com/spf13/cobra"
)

// The files of two authorities, in the directory of the certificates.
const (
	clientAuthority  = "ca"
	replicaAuthority = "replica-ca"
)

// How long certificates are valid, in days.
const (
	authorityDays = 3650
	leafDays      = 365
)

const day = 24 * time.Hour

type certsOptions struct {
	dir  string
	days int
}

func newCertsCommand() *cobra.Command {
	return groupOf(&cobra.Command{
		Use:   "certs",
		Short: "Make the certificates of a cell and its clients",
		Long: `certs makes a working set of certificates, for cells without an authority of
their own. There are two authorities: ca signs for the client port, both the
servers' certificates and the clients', and replica-ca for the Raft port. Keep
their keys off the replicas.

With an authority of your own: a client's certificate names its principal by a
SPIFFE ID (the URI spiffe://...) or, without one, by its one DNS name; a replica's
has the URI chubby://CELL/replica/ID, for use as a server and as a client; a
server's is for the host that clients dial.`,
		Example: `  chubbyd certs init
  chubbyd certs server r1 --cell main --host chubby1.example.org
  chubbyd certs client billing
  chubbyd certs token billing`,
	}, newCertsInitCommand(), newCertsServerCommand(), newCertsClientCommand(), newCertsRevokeCommand(), newCertsTokenCommand())
}

// command completes a command with its flags and what it does. days is how long its certificates count; 0 if it makes none.
func (o *certsOptions) command(cmd *cobra.Command, days int, run func(out io.Writer, args []string) error) *cobra.Command {
	cmd.Flags().StringVar(&o.dir, "dir", "certs", "the directory of the certificates")
	if days > 0 {
		cmd.Flags().IntVar(&o.days, "days", days, "how long they count, in days; not longer than their authority")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if days > 0 && (o.days < 1 || o.days > 36500) {
			return usagef("--days %d: 1 to 36500 are possible", o.days)
		}
		return run(cmd.OutOrStdout(), args)
	}
	return cmd
}

func (o *certsOptions) lifetime() time.Duration { return time.Duration(o.days) * day }

func (o *certsOptions) file(name, kind string) string { return filepath.Join(o.dir, name+"."+kind) }

func (o *certsOptions) authority(name string) (certs.Pair, error) {
	a, err := certs.ReadPair(o.file(name, "crt"), o.file(name, "key"))
	if err != nil {
		return a, fmt.Errorf("read the authority: %w; 'chubbyd certs init' makes one, and --dir says where it is", err)
	}
	return a, nil
}

func (o *certsOptions) write(out io.Writer, name, what string, p certs.Pair) error {
	cert, key := o.file(name, "crt"), o.file(name, "key")
	if err := p.Write(cert, key); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: nothing is replaced; move it away first, or choose another --dir", err)
		}
		return fmt.Errorf("write a certificate: %w", err)
	}
	_, err := fmt.Fprintf(out, "%s, %s: %s, until %s\n", cert, key, what, p.Cert.NotAfter.UTC().Format(time.DateOnly))
	return err
}

func newCertsInitCommand() *cobra.Command {
	var o certsOptions
	return o.command(&cobra.Command{
		Use:     "init",
		Short:   "Make the two authorities",
		Example: "  chubbyd certs init --dir /root/chubby-certs",
		Args:    arguments(cobra.NoArgs),
	}, authorityDays, func(out io.Writer, _ []string) error { return o.makeAuthorities(out) })
}

// makeAuthorities makes the directory and the two authorities.
func (o *certsOptions) makeAuthorities(out io.Writer) error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of the certificates: %w; choose another with --dir", err)
	}
	for _, a := range []struct{ name, what string }{{clientAuthority, "authority of servers and clients"}, {replicaAuthority, "authority of replicas"}} {
		made, err := certs.NewAuthority("Chubby "+a.what, o.lifetime())
		if err != nil {
			return fmt.Errorf("make the %s: %w", a.what, err)
		}
		if err := o.write(out, a.name, "the "+a.what, made); err != nil {
			return err
		}
	}
	return nil
}

func newCertsServerCommand() *cobra.Command {
	var o certsOptions
	var cell string
	var hosts []string
	cmd := &cobra.Command{
		Use:   "server ID --cell CELL --host HOST...",
		Short: "Make the certificates of one replica, for its two ports",
		Long: `server makes two certificates: server-ID for clients, who dial the replica by one
of the hosts (names or IP addresses), and replica-ID for the other replicas. It
prints the lines of the configuration.`,
		Example: `  chubbyd certs server r1 --cell main --host chubby1.example.org --host 10.0.0.5`,
		Args:    arguments(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&cell, "cell", api.LocalCell, "the cell's name")
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "a name or an IP address by which clients dial the replica; more than one with commas, or again")
	return o.command(cmd, leafDays, func(out io.Writer, args []string) error {
		id := args[0]
		switch {
		case !api.ValidCell(id):
			return usagef("%q cannot be a replica's name: use letters, digits, '-', '_' and '.', as in r1", id)
		case !api.ValidCell(cell):
			return usagef("--cell %q cannot be a cell's name: use letters, digits, '-', '_' and '.'", cell)
		case len(hosts) == 0:
			return usagef("--host is missing: by which names or addresses do clients dial replica %s?", id)
		}
		return o.makeServer(out, certs.Replica{Cell: cell, ID: id}, hosts)
	})
}

func (o *certsOptions) makeServer(out io.Writer, r certs.Replica, hosts []string) error {
	forClients, err := o.authority(clientAuthority)
	if err != nil {
		return err
	}
	forReplicas, err := o.authority(replicaAuthority)
	if err != nil {
		return err
	}
	server, err := forClients.IssueServer(hosts, o.lifetime())
	if err != nil {
		return fmt.Errorf("make the certificate for clients: %w", err)
	}
	replica, err := forReplicas.IssueReplica(r, o.lifetime())
	if err != nil {
		return fmt.Errorf("make the certificate for replicas: %w", err)
	}
	if err := errors.Join(
		o.write(out, "server-"+r.ID, "for clients that dial "+strings.Join(hosts, ", "), server),
		o.write(out, "replica-"+r.ID, "for the other replicas", replica),
	); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "In the configuration of %s:\n\n  tls-cert: %s\n  tls-key: %s\n  tls-ca: %s\n  peer-tls-cert: %s\n  peer-tls-key: %s\n  peer-tls-ca: %s\n",
		r.ID, o.file("server-"+r.ID, "crt"), o.file("server-"+r.ID, "key"), o.file(clientAuthority, "crt"),
		o.file("replica-"+r.ID, "crt"), o.file("replica-"+r.ID, "key"), o.file(replicaAuthority, "crt"))
	return err
}

func newCertsClientCommand() *cobra.Command {
	var o certsOptions
	return o.command(&cobra.Command{
		Use:   "client PRINCIPAL",
		Short: "Make the certificate of a client",
		Long: `client makes the certificate of a principal: a name like that of a host, or a
SPIFFE ID (spiffe://...). Access control lists name it so. The files are named
after the last part of it.`,
		Example: "  chubbyd certs client billing\n  chubbyd certs client spiffe://example.org/billing",
		Args:    arguments(cobra.ExactArgs(1)),
	}, leafDays, func(out io.Writer, args []string) error { return o.makeClient(out, args[0]) })
}

func (o *certsOptions) makeClient(out io.Writer, principal string) error {
	a, err := o.authority(clientAuthority)
	if err != nil {
		return err
	}
	made, err := a.IssueClient(principal, o.lifetime())
	if err != nil {
		return fmt.Errorf("make the certificate of %s: %w", principal, err)
	}
	return o.write(out, "client-"+filepath.Base(principal), "of "+principal, made)
}

func newCertsRevokeCommand() *cobra.Command {
	var o certsOptions
	return o.command(&cobra.Command{
		Use:   "revoke CERT...",
		Short: "Revoke certificates of clients, servers or replicas",
		Long: `revoke adds certificates to the revocation list of their authority, ca.crl or
replica-ca.crl. Replicas that have the file (tls-crl, peer-tls-crl) read it again
within seconds, and close the connections of those certificates.`,
		Example: "  chubbyd certs revoke certs/client-billing.crt",
		Args:    arguments(cobra.MinimumNArgs(1)),
	}, 0, func(out io.Writer, args []string) error {
		for _, name := range args {
			if err := o.revoke(out, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// revoke adds a certificate to its authority's list.
func (o *certsOptions) revoke(out io.Writer, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return fmt.Errorf("%s does not begin with a certificate in PEM", name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var missing error
	for _, authority := range []string{clientAuthority, replicaAuthority} {
		a, err := o.authority(authority)
		if err != nil {
			missing = errors.Join(missing, err)
			continue
		}
		if cert.CheckSignatureFrom(a.Cert) != nil {
			continue
		}
		list := o.file(authority, "crl")
		if err := extendList(a, list, cert); err != nil {
			return fmt.Errorf("extend the revocation list: %w", err)
		}
		_, err = fmt.Fprintf(out, "%s: revoked in %s\n", name, list)
		return err
	}
	if missing != nil {
		return missing
	}
	return fmt.Errorf("%s was signed by none of the authorities in %s; --dir says where they are", name, o.dir)
}

// extendList adds a certificate to the lists in a file, which may be missing. It merges this authority's lists
// into one; others stay.
func extendList(a certs.Pair, file string, cert *x509.Certificate) error {
	var before []x509.RevocationListEntry
	var others []byte
	about, err := os.Stat(file)
	if err == nil && about.Size() > 0 {
		err = certs.EachBlock(file, "X509 CRL", func(der []byte) error {
			list, err := x509.ParseRevocationList(der)
			switch {
			case err != nil:
				return err
			case list.CheckSignatureFrom(a.Cert) == nil:
				before = append(before, list.RevokedCertificateEntries...)
			default:
				others = append(others, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})...)
			}
			return nil
		})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	der, err := a.Revoke(before, cert)
	if err != nil {
		return err
	}
	return replaceFile(file, append(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), others...))
}

// The issuer of certs' tokens: its key, and the keys with which replicas verify tokens.
const (
	tokenIssuer   = "chubbyd-certs"
	tokenAudience = "chubby"
	tokenKey      = "token-issuer.key"
	tokenKeys     = "token-keys.json"
)

func newCertsTokenCommand() *cobra.Command {
	var o certsOptions
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "token PRINCIPAL",
		Short: "Make a token of a client, where nobody else issues tokens",
		Long: `token makes a bearer token (a JWT) of a principal, and prints the lines of the
configuration by which replicas take it. It is for cells without an issuer of their
own; tokens of Kubernetes and of providers of OpenID Connect count as they are
(token-keys, token-issuer and token-audience in docs/chubbyd.md).

Whoever has a token is its principal until it expires: nothing takes back a single
one. To take back all of them, delete ` + tokenKey + ` and ` + tokenKeys + `, and
make new ones.`,
		Example: "  chubbyd certs token billing --for 12h\n  chubbyctl --cacert certs/ca.crt --token-file certs/billing.token ls",
		Args:    arguments(cobra.ExactArgs(1)),
	}
	cmd.Flags().DurationVar(&lifetime, "for", day, "how long it counts")
	return o.command(cmd, 0, func(out io.Writer, args []string) error {
		if args[0] == "" || strings.ContainsAny(args[0][:1], "*@#") {
			return usagef("%q cannot be a principal: '*', '@' and '#' mean something else in an access control list", args[0])
		}
		if lifetime < time.Minute || lifetime > leafDays*day {
			return usagef("--for %v: 1m to %v are possible", lifetime, leafDays*day)
		}
		return o.makeToken(out, args[0], lifetime)
	})
}

func (o *certsOptions) makeToken(out io.Writer, principal string, lifetime time.Duration) error {
	issuer, err := o.issuer()
	if err != nil {
		return fmt.Errorf("read the issuer of tokens: %w; --dir says where it is", err)
	}
	token, err := issuer.Issue(principal, tokenAudience, lifetime)
	if err != nil {
		return fmt.Errorf("make the token of %s: %w", principal, err)
	}
	name := o.file(strings.ReplaceAll(principal, "/", "_"), "token") // each principal has its own file
	if err := replaceSecret(name, []byte(token+"\n")); err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s: of %s, for %v\nIn the configuration of each replica:\n\n  token-keys: %s\n  token-issuer: %s\n  token-audience: %s\n",
		name, principal, lifetime, filepath.Join(o.dir, tokenKeys), tokenIssuer, tokenAudience)
	return err
}

// issuer returns the issuer of tokens, and makes a missing one.
func (o *certsOptions) issuer() (tokens.Issuer, error) {
	text, err := os.ReadFile(filepath.Join(o.dir, tokenKey))
	if _, missing := os.Stat(filepath.Join(o.dir, tokenKeys)); err == nil && missing != nil {
		return tokens.Issuer{}, fmt.Errorf("%s is there, and %s is not: put it back, or delete both: %w", tokenKey, tokenKeys, missing)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return o.makeIssuer()
	}
	if err != nil {
		return tokens.Issuer{}, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return tokens.Issuer{}, fmt.Errorf("%s has no PEM", tokenKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return tokens.Issuer{}, fmt.Errorf("%s: %w", tokenKey, err)
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return tokens.Issuer{}, fmt.Errorf("%s has another kind of key", tokenKey)
	}
	return tokens.NewIssuer(tokenIssuer, signer)
}

func (o *certsOptions) makeIssuer() (tokens.Issuer, error) {
	issuer, err := tokens.NewIssuer(tokenIssuer, nil)
	if err != nil {
		return issuer, err
	}
	keys, err := tokens.KeySet(issuer)
	if err != nil {
		return issuer, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(issuer.Key)
	if err != nil {
		return issuer, err
	}
	// The key last: without it, everything is made again.
	return issuer, errors.Join(
		os.MkdirAll(o.dir, 0o700),
		replaceFile(filepath.Join(o.dir, tokenKeys), append(keys, '\n')),
		replaceSecret(filepath.Join(o.dir, tokenKey), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	)
}
