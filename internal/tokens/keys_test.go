package tokens

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Keys come from a server, which may want a token itself.
func TestKeysFromAServer(t *testing.T) {
	f := newFixture(t, nil)
	keys := must(KeySet(f.issuer))(t)
	var answer atomic.Int64
	var asked atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		switch {
		case q.Header.Get("Authorization") != "Bearer mine":
			w.WriteHeader(http.StatusUnauthorized)
		case answer.Load() == http.StatusFound && q.URL.Path == "/keys":
			http.Redirect(w, q, "/elsewhere", http.StatusFound)
		case q.URL.Path == "/elsewhere":
			_, _ = w.Write(keys)
		case answer.Load() == 1:
			_, _ = w.Write(bytes.Repeat([]byte(" "), maxKeySet+1))
		default:
			w.WriteHeader(int(answer.Load()))
			_, _ = w.Write(keys)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	ca, own := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	if err := errors.Join(
		os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600),
		os.WriteFile(own, []byte("mine\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	s := newStore(Config{Keys: server.URL + "/keys", KeysCA: ca, KeysToken: own, Issuer: issuerName, Audience: "chubby"}, f.now)
	token := f.sign(t, f.claims())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// A client that shows a token is told neither where the keys are nor what the network said.
	withheld := func(when string) {
		t.Helper()
		_, err := s.Verify(ctx, token)
		if !errors.Is(err, errUnknownKey) || strings.Contains(err.Error(), server.URL) || errors.Is(err, s.Err()) {
			t.Errorf("%s: %v", when, err)
		}
	}
	withheld("before the server was asked")
	for _, wrong := range []int64{http.StatusInternalServerError, http.StatusFound, 1} {
		answer.Store(wrong)
		if _, err := s.Refresh(t.Context()); err == nil {
			t.Errorf("the answer %d is no error", wrong)
		}
		if _, err := s.Refresh(t.Context()); err == nil {
			t.Errorf("the answer %d is forgotten", wrong)
		}
		withheld("before it was answered")
		f.time = f.time.Add(betweenReads)
	}
	answer.Store(http.StatusOK)
	if changed, err := s.Refresh(t.Context()); err != nil || !changed {
		t.Fatal(changed, err)
	}
	before := asked.Load()
	if _, err := s.Refresh(t.Context()); err != nil || asked.Load() != before {
		t.Error("it is asked again at once:", err)
	}
	f.time = f.time.Add(everyFetch)
	if _, err := s.Refresh(t.Context()); err != nil || asked.Load() != before+1 {
		t.Error("it is not asked again:", err)
	}
	if got, err := s.Verify(t.Context(), f.sign(t, f.claims())); err != nil || got.Principal != "alice" {
		t.Error(got, err)
	}
	f.time = f.time.Add(everyFetch)
	noErr(t, os.WriteFile(own, []byte("another"), 0o600))
	if _, err := s.Refresh(t.Context()); err == nil {
		t.Error("it is no error that the server wants another token")
	}
	if _, err := s.Verify(t.Context(), f.sign(t, f.claims())); err != nil {
		t.Error("keys that were read before do not count any more:", err)
	}
}

// Key sets that would let in whom they should not.
func TestParseKeySet(t *testing.T) {
	small := must(rsa.GenerateKey(rand.Reader, 1024))(t)
	issuer := newIssuer(t)
	public := must(issuer.public())(t)
	set := func(keys ...any) []byte {
		text := must(json.Marshal(map[string]any{"keys": keys}))(t)
		return text
	}
	for name, c := range map[string]struct {
		text []byte
		err  string
	}{
		"one":                     {text: set(public)},
		"one, and one not for us": {text: set(public, map[string]any{"kty": "RSA", "use": "enc"}, map[string]any{"kty": "new"})},
		"none":                    {text: set(), err: "no key"},
		"no set":                  {text: []byte(`[]`), err: "no JSON Web Key Set"},
		"a secret":                {text: set(jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef")}), err: "secret"},
		"a private key":           {text: set(jose.JSONWebKey{Key: issuer.Key}), err: "secret"},
		"a weak key":              {text: set(jose.JSONWebKey{Key: small.Public()}), err: "2048"},
		"a weak key beside one":   {text: set(public, jose.JSONWebKey{Key: small.Public()})},
		"too many":                {text: set(make([]any, maxKeys+1)...), err: "at most"},
	} {
		_, err := parseKeySet(c.text)
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
	}
}

// Two clients with tokens of the new key come while the keys are being read: both should be let in.
func TestTokensWaitForKeysThatAreRead(t *testing.T) {
	f := newFixture(t, nil)
	old, _ := KeySet(f.issuer)
	next := f.another(t)
	fresh, _ := KeySet(f.issuer, next)
	text := old
	asked, answer := make(chan struct{}, 9), make(chan struct{}, 9)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked <- struct{}{}
		<-answer
		_, _ = w.Write(text)
	}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca")
	_ = os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)
	s := newStore(Config{Keys: server.URL, KeysCA: ca, Issuer: issuerName, Audience: "chubby"}, f.now)
	answer <- struct{}{}
	must(s.Refresh(t.Context()))(t)
	<-asked
	text = fresh
	f.time = f.time.Add(time.Minute)
	go func() { <-s.Wanted(); _, _ = s.Refresh(t.Context()) }()
	token, _ := next.Sign(f.claims())
	first := make(chan error, 1)
	go func() { _, err := s.Verify(t.Context(), token); first <- err }()
	<-asked // the keys are being read now
	second := make(chan error, 1)
	go func() { _, err := s.Verify(t.Context(), token); second <- err }()
	answer <- struct{}{}
	for _, who := range []chan error{first, second} {
		if err := <-who; err != nil {
			t.Error(err)
		}
	}
}

// An issuer takes a key back, and adds one of a curve that is not understood: the one that was taken back
// must not count.
func TestKeysThatCannotBeUnderstood(t *testing.T) {
	for name, odd := range map[string]map[string]any{
		"secp256k1":          {"kty": "EC", "crv": "secp256k1", "use": "sig", "alg": "ES256K", "x": "AAAA", "y": "AAAA"},
		"Ed448":              {"kty": "OKP", "crv": "Ed448", "use": "sig", "x": "AAAA"},
		"X25519 without use": {"kty": "OKP", "crv": "X25519", "key_ops": []string{"deriveKey"}, "x": "AAAA"},
	} {
		f := newFixture(t, nil)
		got, err := f.Verify(t.Context(), f.sign(t, f.claims()))
		noErr(t, err)
		next := newIssuer(t)
		public, _ := next.public()
		text, _ := json.Marshal(map[string]any{"keys": []any{public, odd}})
		_ = os.WriteFile(f.file, text, 0o600)
		_, err = f.Refresh(t.Context())
		if f.Counts(got) {
			t.Errorf("%s: the key was taken back and counts: %v", name, err)
		}
	}
}

// A key that is new in a file counts at once, though the file was read some seconds ago.
func TestNewKeyInAFile(t *testing.T) {
	f := newFixture(t, nil)
	for range 20 { // watchTokens
		f.time = f.time.Add(5 * time.Second)
		_, _ = f.Refresh(t.Context())
	}
	next := f.another(t)
	writeKeys(t, f.file, f.issuer, next)
	f.time = f.time.Add(4900 * time.Millisecond)
	go func() { <-f.Wanted(); _, _ = f.Refresh(t.Context()) }()
	token, _ := next.Sign(f.claims())
	if _, err := f.Verify(t.Context(), token); err != nil {
		t.Error("the key was not looked for:", err)
	}
}
