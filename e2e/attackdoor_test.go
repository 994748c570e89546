package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"golang.org/x/net/http2"
)

// steps sends transactions of very many empty steps, as one who shows no certificate: over HTTP/2, and over every other connection in frames. Each would take 62
// times its length if it were decoded.
func (a *attacker) steps() error {
	a.tls = a.tls.Clone()
	a.tls.Certificates = nil
	message := bytes.Repeat([]byte{3<<3 | 2, 0}, (api.MaxCommand-1<<10)/2)
	return a.again(a.Clients, func(conn net.Conn) error {
		if a.from.Load()%2 == 0 {
			return a.longTxns(conn, message)
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
		body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		next := calls(pb.Chubby_Txn_FullMethodName, func(f *http2.Framer, stream uint32) error {
			var err error
			for rest := body; len(rest) > 0 && err == nil; {
				n := min(len(rest), 16<<10)
				err = f.WriteData(stream, n == len(rest), rest[:n])
				rest = rest[n:]
			}
			return err
		})
		for {
			data, err := next(1)
			if err == nil {
				_, err = conn.Write(data)
			}
			if err != nil {
				return err
			}
			a.done.Add(1)
		}
	})
}

// longTxns is steps in frames.
func (a *attacker) longTxns(conn net.Conn, message []byte) error {
	r, err := greet(conn)
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, r.in) }() // ends with the connection
	method := pb.Chubby_Txn_FullMethodName
	for call := uint64(1); ; call++ {
		b := frames.Header{Kind: frames.KindRequest, Call: call, Length: 2 + len(method) + len(message)}.Append(nil)
		if _, err := conn.Write(append(append(append(append(b, byte(len(method))), method...), 0), message...)); err != nil {
			return err
		}
		a.done.Add(1)
	}
}

// chains makes handshakes in which certificates are shown that might be the issuers of each other.
func (a *attacker) chains() error {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return err
	}
	a.tls = a.tls.Clone()
	a.tls.Certificates = []tls.Certificate{{PrivateKey: key}}
	now := time.Now()
	for n := range int64(6) {
		c := &x509.Certificate{
			SerialNumber: big.NewInt(n + 1), Subject: pkix.Name{CommonName: "x"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
			DNSNames: []string{string(rune('a' + n))}, BasicConstraintsValid: true, IsCA: n > 0,
		}
		issuer := &x509.Certificate{Subject: pkix.Name{CommonName: "x"}, IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), key)
		if err != nil {
			return err
		}
		a.tls.Certificates[0].Certificate = append(a.tls.Certificates[0].Certificate, der)
	}
	return a.again(a.Clients, func(conn net.Conn) error {
		a.done.Add(1)
		if _, err := conn.Read(make([]byte, 1)); err == nil { // until it is closed
			return errors.New("the replica said something")
		}
		return nil
	})
}
