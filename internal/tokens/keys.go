package tokens

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Bounds of a key set.
const (
	maxKeys    = 100
	maxKeySet  = 1 << 20 // bytes
	minRSABits = 2048
)

// How often a key set is asked for.
const (
	everyFetch       = 5 * time.Minute  // of a URL, when all is well
	betweenReads     = 10 * time.Second // at least, of a URL, for every caller
	betweenFileReads = time.Second      // the same of a file
	fetchTimeout     = 10 * time.Second
)

// keySet is the keys of an issuer. It is not changed any more.
type keySet struct {
	keys   []jose.JSONWebKey
	prints []string // of each: the hash that tells a key from others
}

// parseKeySet reads a JSON Web Key Set (RFC 7517). Keys that are not for signatures, that cannot be understood or are too weak are left
// out, so that they do not keep the others from being read; one that is secret is a mistake.
func parseKeySet(text []byte) (*keySet, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("this is no JSON Web Key Set: %w", err)
	}
	if len(raw.Keys) > maxKeys {
		return nil, fmt.Errorf("there are %d keys, and at most %d are allowed", len(raw.Keys), maxKeys)
	}
	set := &keySet{}
	leftOut := ""
	for i, one := range raw.Keys {
		var kind struct {
			Type string `json:"kty"`
			Use  string `json:"use"`
		}
		if err := json.Unmarshal(one, &kind); err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		if kind.Use == "enc" {
			continue
		}
		if !slices.Contains([]string{"RSA", "EC", "OKP", "oct"}, kind.Type) {
			continue // "Implementations SHOULD ignore JWKs … that use kty values that are not understood" (RFC 7517 §5)
		}
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(one); err != nil {
			leftOut = fmt.Sprintf("; key %d: %v", i+1, err) // of a curve that is not known, for one
			continue
		}
		//mutant: if false { //by TestParseKeySet of ./internal/tokens
		if !key.IsPublic() {
			return nil, fmt.Errorf("key %d (kid %q) is secret: tokens are checked by public keys, and whoever has this one can make tokens", i+1, key.KeyID)
		}
		//mutant: if r, ok := key.Key.(*rsa.PublicKey); ok && r.N.BitLen() < 1 { //by TestParseKeySet of ./internal/tokens
		if r, ok := key.Key.(*rsa.PublicKey); ok && r.N.BitLen() < minRSABits {
			leftOut = fmt.Sprintf("; key %d (kid %q) has %d bits, and an RSA key needs %d", i+1, key.KeyID, r.N.BitLen(), minRSABits)
			continue
		}
		sum, err := key.Thumbprint(crypto.SHA256)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		set.keys, set.prints = append(set.keys, key), append(set.prints, string(sum))
	}
	if len(set.keys) == 0 {
		return nil, errors.New("there is no key in it by which signatures are checked" + leftOut)
	}
	return set, nil
}

// matching returns the places of the keys that may have signed what has that header.
func (k *keySet) matching(h jose.Header) []int {
	var places []int
	for i, key := range k.keys {
		if (h.KeyID == "" || h.KeyID == key.KeyID) && (key.Algorithm == "" || key.Algorithm == h.Algorithm) {
			places = append(places, i)
		}
	}
	return places
}

// isURL reports whether the key set is at a URL, and not in a file.
func (c Config) isURL() bool { return strings.Contains(c.Keys, "://") }

// read reads the key set.
func (c Config) read(ctx context.Context) ([]byte, error) {
	if c.isURL() {
		return c.fetch(ctx)
	}
	return readBounded(c.Keys, maxKeySet)
}

// fetch asks a server for the key set. The server has to answer itself: a redirection could lead
// anywhere, and would be given the token.
func (c Config) fetch(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("no answer within %v", fetchTimeout))
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.KeysCA != "" {
		text, err := readBounded(c.KeysCA, maxKeySet)
		if err != nil {
			return nil, err
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", c.KeysCA)
		}
	}
	transport := &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	//mutant: client := http.Client{Transport: transport} //by TestKeysFromAServer of ./internal/tokens
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Keys, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	if c.KeysToken != "" {
		token, err := ReadFile(c.KeysToken)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", c.Keys, answer.Status)
	}
	return bounded(answer.Body, c.Keys, maxKeySet)
}

func readBounded(name string, most int) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() // it was only read
	return bounded(file, name, most)
}

func bounded(r io.Reader, name string, most int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s is longer than %d bytes", name, most)
	}
	return text, err
}

// Issuer makes tokens with a key of its own: for cells that have no provider of tokens, and
// for tests.
type Issuer struct {
	Name string // the claim iss
	Key  *ecdsa.PrivateKey
	now  func() time.Time
}

// NewIssuer returns an issuer; of a key that is nil, with a new one.
func NewIssuer(name string, key *ecdsa.PrivateKey) (Issuer, error) {
	var err error
	if key == nil {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	return Issuer{Name: name, Key: key, now: wallNow}, err
}

// public returns the key by which tokens of i are checked.
func (i Issuer) public() (jose.JSONWebKey, error) {
	key := jose.JSONWebKey{Key: i.Key.Public(), Algorithm: string(jose.ES256), Use: "sig"}
	sum, err := key.Thumbprint(crypto.SHA256)
	key.KeyID = base64.RawURLEncoding.EncodeToString(sum)
	return key, err
}

// KeySet returns the JSON Web Key Set of issuers.
func KeySet(issuers ...Issuer) ([]byte, error) {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, i := range issuers {
		key, err := i.public()
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, key)
	}
	return json.MarshalIndent(set, "", "  ")
}

// Issue makes a token that names a principal by the claim sub.
func (i Issuer) Issue(principal, audience string, lifetime time.Duration) (string, error) {
	now := i.now()
	return i.Sign(jwt.Claims{
		Issuer: i.Name, Subject: principal, Audience: jwt.Audience{audience},
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(lifetime)),
	})
}

// Sign makes a token of any claims.
func (i Issuer) Sign(claims any) (string, error) {
	key, err := i.public()
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.Key, KeyID: key.KeyID}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}
