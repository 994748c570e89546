package wire

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"

	"github.com/chubbylock/chubby/api"
)

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

// hearGuest identifies a connection by its guest, if a member of the cell speaks for it. It hears the introduction
// first, so that calls can be answered with what is wrong.
func (c *heardConn) hearGuest(conn *tls.Conn) error {
	guest, err := readGuest(conn)
	if err != nil {
		return err
	}
	//mutant: speaker, counts, err := "r1", func() bool { return true }, error(nil) //by TestSpeakers of ./cell
	speaker, counts, err := c.certificates.Speaker(conn.ConnectionState().PeerCertificates)
	if err == nil {
		err = CheckPrincipal(guest.Principal)
	}
	if err != nil {
		c.refuse(&identity{refusal: unauthenticated(err.Error(), nil)})
		return nil
	}
	c.identity.Store(&identity{principal: guest.Principal, counts: counts, from: guest.Address, by: speaker})
	c.account.all.knows(c, guest.Principal)
	return nil
}

// from returns where the client is, and which replica speaks for it, if one does.
func (c *heardConn) from() (address, by string) {
	if who := c.identity.Load(); who != nil && who.by != "" {
		return who.from, who.by
	}
	return c.Conn.RemoteAddr().String(), ""
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
