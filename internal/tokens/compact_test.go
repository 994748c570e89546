package tokens

import (
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A token counts in one spelling: what package base64 passes over is refused, and so is a header with an extension, whoever has signed it.
func TestTokensInOneSpelling(t *testing.T) {
	f := newFixture(t, nil)
	good := f.sign(t, f.claims())
	if _, err := f.Verify(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	for what, between := range map[string]string{"an end of line": "\n", "a return": "\r", "a space": " ", "a NUL": "\x00", "padding": "=", "one of another base64": "+", "a letter of another script": "е"} {
		for at, dot := range []int{strings.Index(good, "."), strings.LastIndex(good, ".")} {
			for _, text := range []string{good[:dot] + between + good[dot:], good[:dot+1] + between + good[dot+1:], between + good, good + between} {
				if _, err := f.Verify(t.Context(), text); err == nil || !strings.Contains(err.Error(), "no JWT") {
					t.Errorf("%s, at dot %d: %v", what, at, err)
				}
			}
		}
	}
	key, err := f.issuer.public()
	if err != nil {
		t.Fatal(err)
	}
	for what, header := range map[string]map[string]any{
		"not encoded":         {"crit": []string{"b64"}, "b64": false},
		"encoded, as always":  {"b64": true},
		"of another's making": {"crit": []string{"http://example.org/x"}, "http://example.org/x": 1},
	} {
		options := (&jose.SignerOptions{}).WithType("JWT")
		for name, value := range header {
			options = options.WithHeader(jose.HeaderKey(name), value)
		}
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: f.issuer.Key, KeyID: key.KeyID}}, options)
		if err != nil {
			t.Fatal(err)
		}
		text, err := jwt.Signed(signer).Claims(f.claims()).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Verify(t.Context(), text); err == nil || !strings.Contains(err.Error(), "no extension of JWT is known") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
