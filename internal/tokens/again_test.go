package tokens

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Two clients with tokens of the new key come while the keys are being read: both should be let in.
func TestTokensWaitForKeysThatAreRead(t *testing.T) {
	f := newFixture(t, nil)
	old, _ := KeySet(f.issuer)
	next := newIssuer(t)
	next.now = f.issuer.now
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
	if _, err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	next := newIssuer(t)
	next.now = f.issuer.now
	writeKeys(t, f.file, f.issuer, next)
	f.time = f.time.Add(4900 * time.Millisecond)
	go func() { <-f.Wanted(); _, _ = f.Refresh(t.Context()) }()
	token, _ := next.Sign(f.claims())
	if _, err := f.Verify(t.Context(), token); err != nil {
		t.Error("the key was not looked for:", err)
	}
}
