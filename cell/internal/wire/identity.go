package wire

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
)

// Certificates identify the other end of a connection.
type Certificates interface {
	// Accept encrypts a connection. It accepts any certificate of limited size. By GuestProtocol, both ends show
	// the certificates of replicas.
	Accept(conn net.Conn) *tls.Conn
	// Speaker is Identify for these: it returns the ID of a member of the cell.
	Speaker(chain []*x509.Certificate) (id string, counts func() bool, err error)
	// Identify returns the principal of the chain's first certificate, and a function that cheaply reports
	// whether it is still valid; or why it is invalid.
	Identify(chain []*x509.Certificate) (principal string, counts func() bool, err error)
}

// Tokens identify the other end of a connection without a certificate.
type Tokens interface {
	// Verify returns a token's principal, and a function that reports whether it is still valid; or why it is invalid.
	Verify(ctx context.Context, token string) (principal string, counts func() bool, err error)
}

// identity is the other end of an encrypted connection. It is immutable, but can be replaced.
type identity struct {
	principal string             // "" if unknown
	refusal   error              // why its credentials are invalid
	counts    func() bool        // whether it is still valid, if refusal is nil
	expiry    *time.Timer        // closes a refused connection
	pending   bool               // no credentials yet; a token may still come
	token     *[sha256.Size]byte // hash of the token; nil without one
	from, by  string             // of a guest: the address, and the replica that speaks
}

func unauthenticated(why string, tokens Tokens) error {
	why += "; this cell knows clients by certificates (Config.TLS; chubbyctl --cacert, --cert and --key)"
	if tokens != nil {
		why += " and by tokens (Config.Credentials; chubbyctl --token-file)"
	}
	return &api.Error{Code: api.Unauthenticated, Message: why}
}

// nobody is the principal of a client that has not identified itself. No list can admit it.
const nobody = "#nobody"

// CheckPrincipal checks that a name fits in a line of an access control list, and that people can tell it from
// other entries: it has no invisible characters.
func CheckPrincipal(name string) error {
	problem := ""
	switch {
	case name == "" || len(name) > api.MaxPrincipal || !utf8.ValidString(name):
		problem = fmt.Sprintf("want UTF-8 of 1 to %d bytes", api.MaxPrincipal)
	case strings.ContainsFunc(name, isHidden), strings.TrimSpace(name) != name:
		problem = "it has a character that cannot be seen, or a space at its end"
	case name == "*" || name[0] == '@' || name[0] == '#':
		problem = "'*', '@' and '#' mean something else in an access control list"
	}
	if problem == "" {
		return nil
	}
	format := "%.40q cannot be a principal: %s"
	if strings.ContainsFunc(name, isHidden) {
		format = "%+.40q cannot be a principal: %s"
	}
	return api.Errorf(api.InvalidArgument, format, name, problem)
}

// isHidden reports whether a character is invisible or looks like a space: controls, characters without width,
// marks of text direction, blank letters.
func isHidden(r rune) bool {
	return !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || unicode.Is(unicode.Variation_Selector, r) || r == '\u2800'
}

// GuestProtocol is what a member of the cell asks for (ALPN) to speak for a guest over a connection to the client
// port. Then both ends show the certificates of replicas, and the member introduces the guest: 2 bytes of length,
// big-endian, and a Guest in JSON.
const GuestProtocol = "chubby-guest"

// maxGuest is the longest introduction that is read, in bytes.
const maxGuest = 2 << 10

// Guest is a visitor of a replica's console. The guest's rights count, and not those of the replica.
type Guest struct {
	Principal string `json:"principal"`
	Address   string `json:"address"` // the browser's, for the audit log
}

// Introduce begins the guest's connection.
func (g Guest) Introduce(to io.Writer) error {
	text, err := json.Marshal(g)
	if err == nil {
		_, err = to.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	}
	return err
}

func readGuest(from io.Reader) (g Guest, err error) {
	var size [2]byte
	if _, err = io.ReadFull(from, size[:]); err != nil {
		return g, err
	}
	n := binary.BigEndian.Uint16(size[:])
	if n > maxGuest {
		return g, api.Errorf(api.InvalidArgument, "the introduction of a guest takes %d bytes, more than %d", n, maxGuest)
	}
	text := make([]byte, n)
	if _, err = io.ReadFull(from, text); err == nil {
		err = json.Unmarshal(text, &g)
	}
	return g, err
}
