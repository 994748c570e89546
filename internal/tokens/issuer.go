package tokens

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

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
