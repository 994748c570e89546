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

	"github.com/go-jose/go-jose/v4"
)

// Keys come from a server, which may want a token itself.
func TestKeysFromAServer(t *testing.T) {
	f := newFixture(t, nil)
	keys, err := KeySet(f.issuer)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(own, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Refresh(t.Context()); err == nil {
		t.Error("it is no error that the server wants another token")
	}
	if _, err := s.Verify(t.Context(), f.sign(t, f.claims())); err != nil {
		t.Error("keys that were read before do not count any more:", err)
	}
}

// Key sets that would let in whom they should not.
func TestParseKeySet(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	issuer := newIssuer(t)
	public, err := issuer.public()
	if err != nil {
		t.Fatal(err)
	}
	set := func(keys ...any) []byte {
		text, err := json.Marshal(map[string]any{"keys": keys})
		if err != nil {
			t.Fatal(err)
		}
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
