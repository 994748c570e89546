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

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/internal/tokens"
)

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
