package tokens

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const issuerName = "https://issuer.test"

func newIssuer(t testing.TB) Issuer {
	t.Helper()
	i := must(NewIssuer(issuerName, nil))(t)
	return i
}

func writeKeys(t testing.TB, name string, issuers ...Issuer) {
	t.Helper()
	text, err := KeySet(issuers...)
	if err == nil {
		err = os.WriteFile(name, text, 0o600)
	}
	noErr(t, err)
}

// fixture is a store over a file, with a clock that stands still.
type fixture struct {
	*Store
	issuer Issuer
	file   string
	time   time.Time
}

func newFixture(t testing.TB, edit func(*Config)) *fixture {
	t.Helper()
	f := &fixture{issuer: newIssuer(t), file: filepath.Join(t.TempDir(), "keys.json"), time: time.Unix(1_800_000_000, 0)}
	f.issuer.now = func() time.Time { return f.time }
	writeKeys(t, f.file, f.issuer)
	cfg := Config{Keys: f.file, Issuer: issuerName, Audience: "chubby"}
	if edit != nil {
		edit(&cfg)
	}
	f.Store = newStore(cfg, f.issuer.now)
	must(f.Refresh(t.Context()))(t)
	return f
}

// another returns another issuer, with the same clock.
func (f *fixture) another(t testing.TB) Issuer {
	i := newIssuer(t)
	i.now = f.issuer.now
	return i
}

// claims are those of a token that counts.
func (f *fixture) claims() map[string]any {
	return map[string]any{"iss": issuerName, "aud": "chubby", "sub": "alice", "exp": f.time.Add(time.Hour).Unix(), "iat": f.time.Unix()}
}

func (f *fixture) sign(t testing.TB, claims any) string {
	t.Helper()
	token := must(f.issuer.Sign(claims))(t)
	return token
}

// Tokens have to say this, claim by claim.
func TestVerify(t *testing.T) {
	f := newFixture(t, nil)
	at := func(d time.Duration) int64 { return f.time.Add(d).Unix() }
	for name, c := range map[string]struct {
		claim string
		value any // nil takes the claim away
		err   string
	}{
		"one that counts":              {},
		"several audiences":            {claim: "aud", value: []string{"other", "chubby"}},
		"another audience":             {claim: "aud", value: "other", err: `for the audience ["other"]`},
		"no audience":                  {claim: "aud", err: "for the audience []"},
		"another issuer":               {claim: "iss", value: "https://other.test", err: `of the issuer "https://other.test"`},
		"no issuer":                    {claim: "iss", err: `of the issuer ""`},
		"no subject":                   {claim: "sub", err: `no claim "sub"`},
		"a subject that is no text":    {claim: "sub", value: 7, err: "none of its issuer's"},
		"no end":                       {claim: "exp", err: "never expires"},
		"over":                         {claim: "exp", value: at(-31 * time.Second), err: "has expired"},
		"over, by another clock":       {claim: "exp", value: at(-29 * time.Second)},
		"not begun":                    {claim: "nbf", value: at(31 * time.Second), err: "does not count yet"},
		"not begun, by another clock":  {claim: "nbf", value: at(29 * time.Second)},
		"of the future":                {claim: "iat", value: at(time.Hour), err: "does not count yet"},
		"an end that is no time":       {claim: "exp", value: "soon", err: "none of its issuer's"},
		"an end beyond all that is":    {claim: "exp", value: 1e300, err: "none of its issuer's"},
		"an end a million years ahead": {claim: "exp", value: at(0) * 20_000},
	} {
		claims := f.claims()
		if delete(claims, c.claim); c.value != nil {
			claims[c.claim] = c.value
		}
		token, err := f.Verify(t.Context(), f.sign(t, claims))
		if c.err == "" && (err != nil || token.Principal != "alice") {
			t.Errorf("%s: got %+v, %v", name, token, err)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: got %+v, %v, want %q", name, token, err, c.err)
		}
	}
}

// A token counts only with a signature by a public key of the issuer, and no error repeats it.
func TestVerifySignatures(t *testing.T) {
	f := newFixture(t, nil)
	good := f.sign(t, f.claims())
	parts := strings.Split(good, ".")
	with := func(header map[string]any) string {
		text := must(json.Marshal(header))(t)
		return base64.RawURLEncoding.EncodeToString(text) + "." + parts[1] + "."
	}
	// The key that checks signatures is public: as the secret of an HMAC, everybody has it.
	public := must(f.issuer.public())(t)
	secret := must(public.MarshalJSON())(t)
	hmac := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: secret, KeyID: public.KeyID}}, nil))(t)
	forged := must(jwt.Signed(hmac).Claims(f.claims()).Serialize())(t)
	stranger := f.another(t)
	unknown := must(stranger.Sign(f.claims()))(t)
	for name, token := range map[string]string{
		"none":           with(map[string]any{"alg": "none"}),
		"an HMAC":        forged,
		"another key":    unknown,
		"a changed one":  parts[0] + "." + parts[1] + "." + changed(t, parts[2]),
		"of other words": parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"root"}`)) + "." + parts[2],
		"nothing":        "",
		"no signature":   parts[0] + "." + parts[1],
		"too long":       good + strings.Repeat("x", MaxToken),
	} {
		got, err := f.Verify(t.Context(), token)
		if err == nil {
			t.Errorf("%s: it counts, for %q", name, got.Principal)
		} else if len(token) > 40 && strings.Contains(err.Error(), token[len(token)-20:]) {
			t.Errorf("%s: the error has the secret: %v", name, err)
		}
	}
	if _, err := f.Verify(t.Context(), good); err != nil {
		t.Error("the token itself:", err)
	}
}

// changed returns another signature, as it is written in a token.
func changed(t *testing.T, signature string) string {
	t.Helper()
	raw := must(base64.RawURLEncoding.DecodeString(signature))(t)
	raw[5] ^= 1
	return base64.RawURLEncoding.EncodeToString(raw)
}

// The principal may be in another claim.
func TestClaim(t *testing.T) {
	f := newFixture(t, func(cfg *Config) { cfg.Claim = "email" })
	for name, c := range map[string]struct {
		verified any
		want     bool
	}{"verified": {true, true}, "not verified": {false, false}, "verified, perhaps": {"true", false}, "not said": {nil, true}} {
		claims := f.claims()
		if claims["email"] = "alice@example.org"; c.verified != nil {
			claims["email_verified"] = c.verified
		}
		token, err := f.Verify(t.Context(), f.sign(t, claims))
		if (err == nil) != c.want || err == nil && token.Principal != "alice@example.org" {
			t.Errorf("%s: %+v, %v", name, token, err)
		}
	}
}

// Keys are read again when the file changes; what was signed with one that is gone does not count any more.
func TestKeysChange(t *testing.T) {
	f := newFixture(t, nil)
	token := must(f.Verify(t.Context(), f.sign(t, f.claims())))(t)
	next := f.another(t)
	writeKeys(t, f.file, f.issuer, next)
	if changed, err := f.Refresh(t.Context()); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if changed, err := f.Refresh(t.Context()); changed || err != nil {
		t.Fatal("nothing has changed:", changed, err)
	}
	if !f.Counts(token) {
		t.Error("its key is there, and it does not count")
	}
	noErr(t, os.WriteFile(f.file, []byte("{"), 0o600))
	if _, err := f.Refresh(t.Context()); err == nil || f.Err() == nil {
		t.Error("half a file is no error")
	}
	if !f.Counts(token) {
		t.Error("half a file takes a key back")
	}
	writeKeys(t, f.file, next)
	if changed, err := f.Refresh(t.Context()); !changed || err != nil || f.Err() != nil {
		t.Fatal(changed, err)
	}
	if f.Counts(token) {
		t.Error("its key is gone, and it counts")
	}
	if f.time = f.time.Add(time.Hour + leeway); f.Counts(token) {
		t.Error("it has expired, and it counts")
	}
}

// A token that is signed with a key that is not known has the keys read again, but not at each.
func TestUnknownKeysAreLookedFor(t *testing.T) {
	f := newFixture(t, nil)
	next := f.another(t)
	writeKeys(t, f.file, next)
	token := must(next.Sign(f.claims()))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.Verify(ctx, token); !errors.Is(err, errUnknownKey) {
		t.Errorf("the keys were read just now: %v", err)
	}
	select {
	case <-f.Wanted():
		t.Error("it wants them to be read again")
	default:
	}
	f.time = f.time.Add(betweenReads)
	read := make(chan error)
	go func() {
		<-f.Wanted()
		_, err := f.Refresh(context.Background())
		read <- err
	}()
	if _, err := f.Verify(t.Context(), token); err != nil {
		t.Error(err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	f.time = f.time.Add(betweenReads)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := f.Verify(ctx, f.sign(t, f.claims())); !errors.Is(err, errUnknownKey) {
		t.Errorf("nobody reads the keys, and the call has ended: %v", err)
	}
}

// FuzzVerify looks for tokens that count and should not, and for panics.
func FuzzVerify(f *testing.F) {
	fix := newFixture(f, nil)
	good := fix.sign(f, fix.claims())
	f.Add(good)
	f.Add(strings.ReplaceAll(good, ".", ".."))
	f.Add(`{"payload":"e30","signatures":[]}`)
	f.Fuzz(func(t *testing.T, token string) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if got, err := fix.Verify(ctx, token); err == nil && got.Principal != "alice" {
			t.Errorf("%q counts, for %q", token, got.Principal)
		}
	})
}

// A token counts in one spelling: what package base64 passes over is refused, and so is a header with an extension; its issuer does not matter.
func TestTokensInOneSpelling(t *testing.T) {
	f := newFixture(t, nil)
	good := f.sign(t, f.claims())
	must(f.Verify(t.Context(), good))(t)
	for what, between := range map[string]string{"an end of line": "\n", "a return": "\r", "a space": " ", "a NUL": "\x00", "padding": "=", "one of another base64": "+", "a letter of another script": "е"} {
		for at, dot := range []int{strings.Index(good, "."), strings.LastIndex(good, ".")} {
			for _, text := range []string{good[:dot] + between + good[dot:], good[:dot+1] + between + good[dot+1:], between + good, good + between} {
				if _, err := f.Verify(t.Context(), text); err == nil || !strings.Contains(err.Error(), "no JWT") {
					t.Errorf("%s, at dot %d: %v", what, at, err)
				}
			}
		}
	}
	key := must(f.issuer.public())(t)
	for what, header := range map[string]map[string]any{
		"not encoded":         {"crit": []string{"b64"}, "b64": false},
		"encoded, as always":  {"b64": true},
		"of another's making": {"crit": []string{"http://example.org/x"}, "http://example.org/x": 1},
	} {
		options := (&jose.SignerOptions{}).WithType("JWT")
		for name, value := range header {
			options = options.WithHeader(jose.HeaderKey(name), value)
		}
		signer := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: f.issuer.Key, KeyID: key.KeyID}}, options))(t)
		text := must(jwt.Signed(signer).Claims(f.claims()).Serialize())(t)
		if _, err := f.Verify(t.Context(), text); err == nil || !strings.Contains(err.Error(), "no extension of JWT is known") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
