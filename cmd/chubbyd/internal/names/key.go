package names

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/miekg/dns"
)

// key is a key for TSIG (RFC 8945).
type key struct {
	name, algorithm string // with a dot at the end, as on the wire
	secret          string // base64
}

// maxKeyFile bounds a file with a key, in bytes.
const maxKeyFile = 64 << 10

// tsig-keygen writes: key "name" { algorithm hmac-sha256; secret "..."; } and a semicolon.
var (
	keyText       = regexp.MustCompile(`(?s)\bkey\s+"?([^"\s{]+)"?\s*\{([^}]*)\}`)
	algorithmText = regexp.MustCompile(`\balgorithm\s+"?([^";\s]+)"?\s*;`)
	secretText    = regexp.MustCompile(`\bsecret\s+"?([^";\s]+)"?\s*;`)
)

// readKey reads the first key of a file. Its errors have no word of the secret.
func readKey(path string) (*key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("%s is larger than %d bytes: it is no file of a key", path, maxKeyFile)
	}
	k, err := parseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return k, nil
}

func parseKey(text string) (*key, error) {
	found := keyText.FindStringSubmatch(text)
	if found == nil {
		return nil, errNoKey
	}
	algorithm, secret := algorithmText.FindStringSubmatch(found[2]), secretText.FindStringSubmatch(found[2])
	if algorithm == nil || secret == nil {
		return nil, errNoKey
	}
	k := &key{name: dns.CanonicalName(found[1]), algorithm: dns.CanonicalName(strings.ToLower(algorithm[1])), secret: secret[1]}
	if _, ok := dns.IsDomainName(k.name); !ok {
		return nil, fmt.Errorf("has a key with the name %q, which is none in DNS", found[1])
	}
	switch k.algorithm {
	case dns.HmacSHA224, dns.HmacSHA256, dns.HmacSHA384, dns.HmacSHA512:
	default:
		return nil, fmt.Errorf("has a key for %q; want hmac-sha224, hmac-sha256, hmac-sha384 or hmac-sha512", algorithm[1])
	}
	if b, err := base64.StdEncoding.DecodeString(k.secret); err != nil || len(b) == 0 {
		return nil, errors.New("has a key whose secret is not base64")
	}
	return k, nil
}
