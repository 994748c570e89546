package names

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	const whole = "key \"Chubby\" {\n\talgorithm hmac-sha256;\n\tsecret \"c2VjcmV0\";\n};\n"
	k, err := parseKey("# made by hand\n" + whole + "key \"second\" { };")
	if err != nil || *k != (key{name: "chubby.", algorithm: "hmac-sha256.", secret: "c2VjcmV0"}) {
		t.Errorf("%+v, %v", k, err)
	}
	for text, want := range map[string]string{
		"":                                     "has no key",
		"key chubby { secret \"c2VjcmV0\"; };": "has no key",
		strings.Replace(whole, "sha256", "md5", 1):        "has a key for \"hmac-md5\"; want hmac-sha224",
		strings.Replace(whole, "c2VjcmV0", "sécret", 1):   "is not base64",
		strings.Replace(whole, "Chubby", "a..b", 1):       "which is none in DNS",
		strings.Replace(whole, "algorithm", "logar", 1):   "has no key",
		strings.Replace(whole, "\"c2VjcmV0\"", "\"\"", 1): "has no key",
	} {
		if _, err := parseKey(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2V") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	large := filepath.Join(t.TempDir(), "large")
	noErr(t, os.WriteFile(large, make([]byte, maxKeyFile+1), 0o600))
	if _, err := readKey(large); err == nil || !strings.Contains(err.Error(), "it is no file of a key") {
		t.Error(err)
	}
}

// No text makes a key that cannot be used, or a word of the secret appear in an error.
func FuzzParseKey(f *testing.F) {
	f.Add("key \"chubby\" { algorithm hmac-sha256; secret \"c2VjcmV0\"; };")
	f.Add("key a{algorithm hmac-md5;secret x;}")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseKey(text)
		if (k == nil) == (err == nil) {
			t.Fatal(k, err)
		}
		if k != nil && (!strings.HasSuffix(k.name, ".") || k.secret == "") {
			t.Errorf("%+v", k)
		}
	})
}
